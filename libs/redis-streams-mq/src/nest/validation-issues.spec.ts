import { BadRequestException, ParseIntPipe, UnprocessableEntityException, ValidationPipe } from '@nestjs/common';
import { Type } from 'class-transformer';
import { IsInt, IsNotEmpty, ValidateNested } from 'class-validator';
import fc from 'fast-check';
import { MqValidationError } from '../core/errors.js';
import { withIssues } from './validation-issues.js';

class Item {
  @IsInt()
  count!: number;
}
class Order {
  @IsInt()
  id!: number;
  @IsNotEmpty()
  customer!: string;
  @ValidateNested()
  @Type(() => Item)
  items!: Item[];
}
const payload = { id: 'x', customer: '', items: [{ count: 1 }, { count: 'y' }] };

async function thrownBy(pipe: ValidationPipe): Promise<unknown> {
  return pipe.transform(payload, { type: 'body', metatype: Order }).catch((error: unknown) => error);
}

const messages = ['id must be an integer number', 'customer should not be empty'];
const nested = 'items.1.count must be an integer number';

describe('withIssues lists what is wrong', () => {
  it('of a ValidationPipe as it is, in the message and as issues, with the exception as the cause', async () => {
    const thrown = await thrownBy(new ValidationPipe());
    const error = withIssues(thrown) as MqValidationError;
    expect(error).toBeInstanceOf(MqValidationError);
    expect(error.message).toBe(`the payload is not valid: ${[...messages, nested].join('; ')}`);
    expect(error.issues).toEqual([...messages, nested].map((message) => ({ path: '', message })));
    expect(error.cause).toBe(thrown);
  });

  it('with the path, when the exception has the errors of class-validator', async () => {
    const pipes = [
      new ValidationPipe({ exceptionFactory: (errors) => new UnprocessableEntityException(errors) }),
      new ValidationPipe({ exceptionFactory: (errors) => new BadRequestException({ code: 7, errors }) }),
      new ValidationPipe({ exceptionFactory: (errors) => errors }),
    ];
    for (const pipe of pipes) {
      expect((withIssues(await thrownBy(pipe)) as MqValidationError).issues).toEqual([
        { path: 'id', message: messages[0] },
        { path: 'customer', message: messages[1] },
        { path: 'items.1.count', message: 'count must be an integer number' },
      ]);
    }
  });

  it('of a ValidationPipe that groups by property', async () => {
    const { issues } = withIssues(await thrownBy(new ValidationPipe({ errorFormat: 'grouped' }))) as MqValidationError;
    expect(issues.map(({ path }) => path)).toEqual(['id', 'customer', 'items.1.count']);
  });

  it('and leaves alone what lists nothing', async () => {
    const thrown: unknown = await new ParseIntPipe()
      .transform('x', { type: 'custom' })
      .catch((error: unknown) => error);
    expect(withIssues(thrown)).toBe(thrown);
  });

  it('and never throws, whatever was thrown', () => {
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    expect(withIssues(proxy)).toBe(proxy);
    fc.assert(fc.property(fc.anything(), (thrown) => void withIssues({ response: { message: thrown } })));
  });

  it('cut where there is more than a person reads', () => {
    const issues = Array.from({ length: 30 }, (_, n) => ({ path: `p${n}`, message: 'bad' }));
    expect(new MqValidationError(issues).message).toMatch(
      /^the payload is not valid: p0: bad; .*p19: bad; and 10 more$/,
    );
  });
});

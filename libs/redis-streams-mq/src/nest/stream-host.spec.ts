import { ExecutionContextHost } from '@nestjs/core/helpers/execution-context-host.js';
import { streamContext } from '../../../../test/support/nest-fakes.js';
import { isStreamContext, STREAM_CONTEXT_TYPE, StreamExecutionContext } from './stream-host.js';

class Orders {
  onOrder(this: void): void {}
}
const { onOrder } = Orders.prototype;

describe('StreamExecutionContext', () => {
  it('says what an enhancer may ask about the message', () => {
    const ctx = streamContext();
    const host = new ExecutionContextHost([{ id: 1 }, ctx], Orders, onOrder);
    host.setType(STREAM_CONTEXT_TYPE);
    const context = StreamExecutionContext.create(host);
    expect(context.getPayload()).toEqual({ id: 1 });
    expect(context.getContext()).toBe(ctx);
    expect([context.getClass(), context.getHandler()]).toEqual([Orders, onOrder]);
  });

  it('is not made for a request, and says what to ask first', () => {
    const host = new ExecutionContextHost([{}, {}], Orders, onOrder);
    expect(isStreamContext(host)).toBe(false);
    expect(() => StreamExecutionContext.create(host)).toThrow(
      expect.objectContaining({ code: 'MQ_NOT_A_MESSAGE', message: expect.stringContaining('type "http"') }),
    );
  });
});

import { Injectable, UseGuards, type CanActivate, type ExecutionContext } from '@nestjs/common';
import {
  DeadLetter,
  DeadLetterHandler,
  DeadLetterQueue,
  isStreamContext,
  MqProducer,
  RedisStreamsMqModule,
  StreamCtx,
  StreamHandler,
  type DeadLetterContext,
} from 'nestjs-redis-streams-mq';
import { blocksOf, diagnosticsOf } from '../support/doc-samples.js';
import { queueOptions, useApps } from '../support/nest-app.js';
import { uniqueName, useRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const redis = useRedis();
const apps = useApps();

@Injectable()
class LetterGuard implements CanActivate {
  canActivate(host: ExecutionContext): boolean {
    if (!isStreamContext(host)) return true;
    const { deadLetter } = host.switchToRpc().getContext<DeadLetterContext>();
    return deadLetter === undefined || deadLetter.error?.message !== 'secret';
  }
}

it('a method handles dead letters in the same pipeline as messages, of one group or of all', async () => {
  const topic = uniqueName('topic');
  @Injectable()
  @UseGuards(LetterGuard)
  class Orders {
    readonly seen: string[] = [];
    isRepaired = false;

    @StreamHandler(topic, 'billing')
    bill({ name }: { name: string }): void {
      if (!this.isRepaired) throw new DeadLetter(name);
      this.seen.push(`billed ${name}`);
    }

    @StreamHandler(topic, 'mail')
    mail(): void {
      throw new DeadLetter('no mail');
    }

    @DeadLetterHandler(topic)
    onAny(payload: { name: string }, ctx: DeadLetterContext): void {
      this.seen.push(`${ctx.group}: ${payload.name} of ${ctx.deadLetter.group}, ${ctx.deadLetter.reason}`);
    }

    @DeadLetterHandler(topic, 'billing', { deleteOnSuccess: true })
    async onBilling(payload: { name: string }, @StreamCtx() ctx: DeadLetterContext): Promise<void> {
      this.seen.push(`${ctx.group}: ${payload.name}`);
      if (payload.name !== 'replayed') return;
      this.isRepaired = true;
      await ctx.replay({ payload: { name: 'edited' } });
    }
  }
  const app = await apps.context({
    imports: [
      RedisStreamsMqModule.forRoot(
        queueOptions(redis, { defaultDlqGroup: 'watchers', dlqConsumerSuffix: '.dead', defaultPartitionCount: 1 }),
      ),
    ],
    providers: [Orders],
  });
  const { seen } = app.get(Orders);
  const producer = app.get(MqProducer);
  for (const name of ['deleted', 'secret']) await producer.send(topic, { name });
  await waitFor(() => seen.length >= 4);
  await producer.send(topic, { name: 'replayed' });
  await waitFor(() => seen.includes('billed edited'));
  const deadLetters = app.get(DeadLetterQueue);
  const errors = async (): Promise<(string | undefined)[]> =>
    (await deadLetters.list(topic)).items.map(({ error }) => error?.message);
  await waitFor(async () => (await errors()).length === 4);
  expect((await errors()).toSorted((a = '', b = '') => (a < b ? -1 : 1))).toEqual([
    'no mail',
    'no mail',
    'no mail',
    'secret',
  ]);
  await waitFor(() => seen.filter((line) => line.startsWith('watchers')).length >= 4);
  // What a letter was deleted or replayed before, the other group does not get.
  expect(seen).toEqual(
    expect.arrayContaining([
      'watchers: deleted of mail, rejected',
      'watchers: secret of mail, rejected',
      'watchers: replayed of mail, rejected',
      'billing.dead: deleted',
      'billing.dead: replayed',
      'billed edited',
    ]),
  );
  expect(seen.filter((line) => line.includes('secret'))).toEqual(['watchers: secret of mail, rejected']);
});

it("begins with the letters that are there, also where messages do not; its own startFrom 'latest' leaves them out", async () => {
  const topic = uniqueName('topic');
  @Injectable()
  class Failing {
    @StreamHandler(topic, 'billing', { startFrom: 'earliest' })
    bill(): void {
      throw new DeadLetter('no');
    }
  }
  @Injectable()
  class Watching {
    readonly seen: string[] = [];
    readonly later: string[] = [];

    @DeadLetterHandler(topic)
    onDead(payload: string): void {
      this.seen.push(payload);
    }

    @DeadLetterHandler(topic, 'billing', { startFrom: 'latest' })
    onLater(payload: string): void {
      this.later.push(payload);
    }
  }
  const imports = [
    RedisStreamsMqModule.forRoot(queueOptions(redis, { startFrom: 'latest', defaultPartitionCount: 1 })),
  ];
  const first = await apps.context({ imports, providers: [Failing] });
  await first.get(MqProducer).send(topic, 'early');
  await waitFor(async () => (await first.get(DeadLetterQueue).size(topic)) === 1);
  const { seen, later } = (await apps.context({ imports, providers: [Watching] })).get(Watching);
  await waitFor(() => seen.length === 1);
  // A group begins on the way to its first read; what comes before that is not behind it yet.
  await waitFor(async () => {
    await first.get(MqProducer).send(topic, 'late');
    return later.length > 0;
  });
  expect(seen[0]).toBe('early');
  expect(later).not.toContain('early');
});

it('refuses the boot with all that is wrong with handlers of dead letters', async () => {
  @Injectable()
  class Wrong {
    @DeadLetterHandler('orders')
    one(): void {}
    @DeadLetterHandler('orders')
    two(): void {}
    @DeadLetterHandler('orders', 'a:b')
    three(): void {}
    @DeadLetterHandler('orders', 'x'.repeat(248))
    four(): void {}
    @DeadLetterHandler([], 'g', { maxReplays: -1, deleteOnSuccess: 'yes' as never, retryMaxAttempts: 0 })
    five(): void {}
    @StreamHandler('orders', 'dlq-group')
    six(): void {}
    @DeadLetterHandler('orders', 'g', { batch: { size: 2, waitMs: 0 }, ttlMs: 5 } as never)
    seven(): void {}
  }
  const boot = apps.context({
    imports: [RedisStreamsMqModule.forRoot(queueOptions(redis))],
    providers: [Wrong],
  });
  const { problems } = (await boot.catch((error: unknown) => error)) as { problems: string[] };
  expect(problems).toEqual(
    expect.arrayContaining([
      expect.stringMatching(/topic "orders" in group "dlq-group" has two handlers: Wrong.one .* and Wrong.two/),
      expect.stringMatching(/topic "orders" in group "dlq-group" has two handlers: Wrong.one .* and Wrong.six/),
      expect.stringContaining('Wrong.three: group name "a:b"'),
      expect.stringContaining('Wrong.four: group name'),
      'Wrong.five: the list of topics is empty',
      'Wrong.five: deleteOnSuccess must be true or false',
      'Wrong.five: maxReplays must be an integer of at least 0',
      expect.stringContaining('Wrong.five: retryMaxAttempts'),
      expect.stringContaining('Wrong.seven: @DeadLetterHandler handles one letter after the other'),
      expect.stringContaining('Wrong.seven: @DeadLetterHandler is shown every letter'),
    ]),
  );
  expect(() => DeadLetterHandler('t')(Wrong, 'x', { value: () => 1 })).toThrow('@DeadLetterHandler needs a method');
});

it('the samples of docs/dead-letters.md compile', () => {
  const samples = blocksOf('docs/dead-letters.md', 'ts');
  expect(samples).toHaveLength(2);
  expect(diagnosticsOf(samples)).toEqual([]);
}, 120_000);

import { systemClock, type Clock } from '../core/clock.js';
import { eventIdToWire } from '../core/event-id.js';
import { MqEvents } from '../core/events.js';
import { resolveHandlerOptions } from '../core/handler-options.js';
import type { HandlerDefinition } from '../core/handler.js';
import { Keys } from '../core/keys.js';
import { resolveOptions } from '../core/resolve-options.js';
import { jsonSerializer } from '../core/serializer.js';
import { toEntry, type Entry } from './entry.js';
import { Lease } from './lease.js';
import { MessageRunner } from './message-runner.js';

const keys = new Keys('mq', 'data').groupPartition('orders', 0, 'g');
const terms = { topic: 'orders', partition: 0, group: 'g', keys, token: 'a#1', epoch: 1, clean: true, ttlMs: 1_000 };
const { resolved: options } = resolveHandlerOptions({}, resolveOptions({}), 'orders/g');
const FIELDS = ['payload', '1', 'eventId', eventIdToWire('0190a5c0-0000-7000-8000-000000000001')];
const entry = (n: number): Entry =>
  toEntry('stream', { id: `${n}-0`, fields: FIELDS.map((text) => Buffer.from(text)) }, false);

function make() {
  const seen = { now: 0, calls: 0, lost: [] as string[] };
  const clock: Clock = { ...systemClock, monotonic: () => seen.now };
  const lease = new Lease(terms, 0, clock, (_, reason) => seen.lost.push(reason));
  const handled = (): { type: 'success' } => {
    seen.calls++;
    return { type: 'success' };
  };
  const handler: HandlerDefinition = {
    topic: 'orders',
    group: 'g',
    name: 'Orders.onOrder',
    options,
    invoke: () => Promise.resolve(handled()),
    invokeBatch: (messages) => Promise.resolve(messages.map(handled)),
  };
  const serverNow = (): number => 1;
  const runner = new MessageRunner({
    handler,
    lease,
    serializer: jsonSerializer,
    clock,
    events: new MqEvents(),
    serverNow,
  });
  return { runner, lease, seen };
}

describe('what is to be handled after the lease may have ended', () => {
  it('is not handled, and the lease counts as lost, so that nothing of it is kept as if it were owned', async () => {
    const { runner, lease, seen } = make();
    seen.now = 901;
    const { result } = await runner.run(entry(1));
    expect([result.type, seen.calls, seen.lost, lease.isEnded]).toEqual(['aborted', 0, ['expired'], true]);
  });

  it('is not handled as a batch either', async () => {
    const { runner, lease, seen } = make();
    seen.now = 901;
    const reports = await runner.runBatch([entry(1), entry(2)]);
    expect(reports.map(({ result }) => result.type)).toEqual(['aborted', 'aborted']);
    expect([seen.calls, seen.lost, lease.isEnded]).toEqual([0, ['expired'], true]);
  });

  it('is handled while there is trust', async () => {
    const { runner, seen } = make();
    seen.now = 899;
    await runner.run(entry(1));
    await runner.runBatch([entry(2), entry(3)]);
    expect([seen.calls, seen.lost]).toEqual([3, []]);
  });
});

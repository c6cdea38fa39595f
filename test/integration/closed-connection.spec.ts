import { systemClock } from '../../libs/redis-streams-mq/src/core/clock.js';
import type { DeadLetter } from '../../libs/redis-streams-mq/src/core/dead-letter.js';
import { MqEvents } from '../../libs/redis-streams-mq/src/core/events.js';
import { EntryQueue } from '../../libs/redis-streams-mq/src/consumer/entry-queue.js';
import { toEntry } from '../../libs/redis-streams-mq/src/consumer/entry.js';
import { InFlight } from '../../libs/redis-streams-mq/src/consumer/in-flight.js';
import { Lease } from '../../libs/redis-streams-mq/src/consumer/lease.js';
import { Ledger } from '../../libs/redis-streams-mq/src/consumer/ledger.js';
import { LetterDesk } from '../../libs/redis-streams-mq/src/consumer/letter-desk.js';
import { Recall } from '../../libs/redis-streams-mq/src/consumer/recall.js';
import { Settler } from '../../libs/redis-streams-mq/src/consumer/settler.js';
import { Connection } from '../../libs/redis-streams-mq/src/redis/connection.js';
import { useMq } from '../support/mq-fixture.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
const nothing = (): void => undefined;
const events = new MqEvents();
const entry = toEntry('stream', { id: '1-0', fields: [] }, false);

/** A connection that was closed under whoever has it, and a lease that has not ended: a handler outlived the shutdown. */
async function closed(): Promise<{ connection: Connection; lease: Lease }> {
  const connection = new Connection('closed', mq.redis.client(), systemClock);
  expect(await connection.whenReady(5_000)).toBe(true);
  connection.destroy();
  await waitFor(() => connection.client.status === 'end');
  const keys = mq.keys.groupPartition('orders', 0, 'g');
  const terms = { topic: 'orders', partition: 0, group: 'g', keys, token: 'a#1', epoch: 1, clean: true, ttlMs: 60_000 };
  return { connection, lease: new Lease(terms, systemClock.monotonic(), systemClock, nothing) };
}

describe('after its connection was closed', () => {
  it('whoever tries again leaves the event loop to others meanwhile', async () => {
    const { connection } = await closed();
    let hasFired = false;
    setTimeout(() => (hasFired = true), 1);
    for (let tries = 0; tries < 100 && !hasFired; tries++) await connection.backOff(2);
    expect(hasFired).toBe(true);
  });

  it('the desk of dead letters gives up', async () => {
    const { connection, lease } = await closed();
    const read = async (): Promise<DeadLetter | null> => (await connection.send('PING')) as null;
    const letters = { read, replay: () => Promise.resolve(false) };
    const subscription = { ofGroup: null, deleteOnSuccess: true, maxReplays: 1 };
    const desk = new LetterDesk({ letters, subscription, lease, connection, clock: systemClock, events });
    const { signal } = lease.controller;
    expect([await desk.open(entry, signal), await desk.handled(entry, signal)]).toEqual([null, false]);
  });

  it('whoever fetches what was put aside gives up', async () => {
    const { connection, lease } = await closed();
    const shared = { connection, lease, clock: systemClock, events };
    const ledger = new Ledger(new InFlight(0), nothing);
    const calls = { onGroupLost: nothing, onUnanswered: nothing, onRetryDue: nothing, onLow: nothing, onFull: nothing };
    const settler = new Settler({ ...shared, ...calls, ledger, ackFlushMs: 5 });
    const bounds = { lowMark: 1, maxShelved: 1, laneOf: null };
    const queue = new EntryQueue({ ...shared, ...calls, ...bounds, ledger, recall: nothing });
    let hasEnded = false;
    void new Recall({ ...shared, ledger, settler, queue }).fetch([entry]).then(() => (hasEnded = true));
    await waitFor(() => hasEnded);
  });
});

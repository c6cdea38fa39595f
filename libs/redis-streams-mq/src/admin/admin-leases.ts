import { randomBytes } from 'node:crypto';
import { MqAdminError } from '../core/errors.js';
import { call } from '../redis/script.js';
import { acquire, forsake, release } from '../redis/scripts/lease.script.js';
import { forEachOf, type AdminDeps } from './admin-deps.js';

/** Longer than any step between two prolongations; what a crash leaves behind ends after it. */
const TTL_MS = 15_000;
const NAMED = 20;

/** The administration's hold on partitions of one group: while it lasts, no instance can own them. */
export interface AdminHold {
  /** Prolongs the hold on one partition; what is done under its token is refused once somebody else has it. */
  token(partition: number): Promise<string>;
  /** The group's state there was put in order: whoever comes next has no death to reckon with. */
  settled(partition: number): void;
}

/**
 * Does `work` while no instance owns any of these partitions for the group.
 * @throws MqAdminError `MQ_GROUP_RUNNING` when one does, with the owners in its context; nothing was changed then
 */
export async function whileIdle<T>(
  deps: AdminDeps,
  topic: string,
  group: string,
  partitions: readonly number[],
  work: (hold: AdminHold) => Promise<T>,
): Promise<T> {
  const { connection, keys } = deps;
  const instance = `admin-${randomBytes(6).toString('hex')}`;
  const nonce = randomBytes(8).toString('hex');
  const tokens = new Map<number, string>();
  const inOrder = new Set<number>();
  const keysOf = (partition: number) => keys.groupPartition(topic, partition, group);

  /** The owner, if there is one. */
  const take = async (partition: number): Promise<string | null> => {
    const args = { instance, nonce, ttl: TTL_MS, group, forAdmin: 1 };
    const reply = await connection.run(call(acquire, keysOf(partition), args));
    if (reply.status === 'acquired') tokens.set(partition, `${instance}#${reply.epoch}`);
    return reply.status === 'held' ? reply.token : null;
  };
  const giveBack = async (partition: number): Promise<void> => {
    const token = tokens.get(partition)!;
    // Best effort: a lease that cannot be given back ends by itself.
    const given = inOrder.has(partition)
      ? connection.run(call(release, keysOf(partition), { token, keepLease: 0 }))
      : connection.run(call(forsake, keysOf(partition), { token }));
    await given.catch(() => undefined);
  };

  try {
    const owners = await forEachOf(partitions, async (partition) => ({ partition, owner: await take(partition) }));
    const held = owners.filter(({ owner }) => owner !== null);
    if (held.length > 0) throw running(topic, group, held);
    return await work({
      async token(partition) {
        const owner = await take(partition);
        if (owner !== null) throw running(topic, group, [{ partition, owner }]);
        return tokens.get(partition)!;
      },
      settled: (partition) => void inOrder.add(partition),
    });
  } finally {
    await forEachOf([...tokens.keys()], giveBack);
  }
}

/** `owners`: who keeps it from being idle. */
export function running(topic: string, group: string, owners: readonly unknown[]): MqAdminError {
  return new MqAdminError(
    'MQ_GROUP_RUNNING',
    `group ${group} of topic ${topic} is running; stop its instances first, or pause it where that will do`,
    { retryable: true, context: { topic, group, owners: owners.slice(0, NAMED) } },
  );
}

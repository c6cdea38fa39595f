import { MqError } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import type { Connection } from '../redis/connection.js';
import { call } from '../redis/script.js';
import { heal } from '../redis/scripts/pending.script.js';
import type { Lease } from './lease.js';

export interface EnsureGroupDeps {
  readonly lease: Lease;
  readonly connection: Connection;
  readonly events: MqEvents;
  /** Where a group that has no position yet begins. */
  readonly startPosition: () => Promise<string>;
  /** The partition's stream is not there: makes it again and says whether it may be read on. */
  readonly restoreStream: () => Promise<boolean>;
  /** Whether this process has had the group on this partition before, so that its absence is a loss; from now on true. */
  readonly hadGroup: () => boolean;
}

/**
 * Makes the group on the partition's stream and on its own retry stream where it is missing, and says whether it was.
 * @throws MqError `MQ_TOPIC_DELETED` when the stream is gone and is not to be made again
 */
export async function ensureGroup(deps: EnsureGroupDeps): Promise<'present' | 'made'> {
  const { lease, connection, events, startPosition, restoreStream, hadGroup } = deps;
  const { topic, partition, group, keys, token } = lease.terms;
  const report = (created: boolean, position: string, reason: string): void => {
    const isFirst = !hadGroup();
    if (!created) return;
    if (isFirst && reason === 'new') events.emit('groupCreated', { topic, partition, group, position });
    else events.emit('healed', { topic, partition, group, position, reason });
  };
  const healed = await connection.run(call(heal, keys, { token, group, start: await startPosition() }));
  switch (healed.status) {
    case 'fenced':
      lease.lose('taken');
      return 'present';
    case 'missing':
      if (await restoreStream()) return ensureGroup(deps);
      throw new MqError('MQ_TOPIC_DELETED', 'the topic was deleted', {
        retryable: true,
        context: { topic, partition, group },
      });
    case 'ok':
      report(healed.created, healed.position, healed.reason);
      return healed.created || healed.retryCreated ? 'made' : 'present';
  }
}

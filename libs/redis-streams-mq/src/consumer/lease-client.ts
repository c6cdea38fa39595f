import { randomBytes } from 'node:crypto';
import { partitionId } from '../core/assignment.js';
import type { Clock } from '../core/clock.js';
import type { PartitionRef } from '../core/events.js';
import type { GroupPartitionKeys, Keys } from '../core/keys.js';
import type { Connection } from '../redis/connection.js';
import { call, callMulti } from '../redis/script.js';
import { acquire, holders, release } from '../redis/scripts/lease.script.js';
import type { LeaseTerms } from './lease.js';

export interface LeaseClientDeps {
  readonly group: string;
  readonly instance: string;
  /** Never one that blocks. */
  readonly connection: Connection;
  readonly isCluster: boolean;
  readonly keys: Keys;
  readonly clock: Clock;
  readonly leaseTtlMs: number;
}

export interface AcquiredLease {
  readonly terms: LeaseTerms;
  /** When the request that proved it was sent, on the monotonic clock. */
  readonly sentAt: number;
  /** See the script. */
  readonly freeForMs: number | 'unknown' | 'never';
}

/** Who holds a partition: an instance, or `null`; and for how long without a renewal, in milliseconds. */
export interface PartitionHolder {
  readonly token: string | null;
  readonly instance: string | null;
  readonly leftMs: number;
  /** Nobody may acquire it now; who holds it is to give it up. */
  readonly paused: boolean;
}

export interface Holders {
  /** `undefined` where it cannot be learned, as with one shard of a Cluster away. */
  readonly of: (ref: PartitionRef) => PartitionHolder | undefined;
  /** Why it could not be learned for some. */
  readonly fault: unknown;
}

const HOLDERS_PER_CALL = 250;
const RELEASE_TIMEOUT_MS = 1_000;

/** The leases of one group as Redis knows them. */
export class LeaseClient {
  /** An acquire whose answer was lost is repeated with the same nonce, and gets the same epoch. */
  private readonly nonces = new Map<string, string>();

  constructor(private readonly deps: LeaseClientDeps) {}

  /** `null` when the partition is not free, or the group is paused on it. */
  async acquire(ref: PartitionRef): Promise<AcquiredLease | null> {
    const { connection, clock, instance, group, leaseTtlMs } = this.deps;
    const id = partitionId(ref.topic, ref.partition);
    const keys = this.keysOf(ref);
    const nonce = this.nonces.get(id) ?? randomBytes(8).toString('hex');
    this.nonces.set(id, nonce);
    const sentAt = clock.monotonic();
    const reply = await connection.run(call(acquire, keys, { instance, nonce, ttl: leaseTtlMs, group, forAdmin: 0 }));
    this.nonces.delete(id);
    if (reply.status !== 'acquired') return null;
    const { epoch, clean, freeForMs } = reply;
    return {
      terms: { ...ref, group, keys, token: `${instance}#${epoch}`, epoch, clean, ttlMs: leaseTtlMs },
      sentAt,
      freeForMs,
    };
  }

  /** False when the lease was not ours any more. With `keepLease` it is left to end by itself. */
  async release(ref: PartitionRef, token: string, options: { readonly keepLease: boolean }): Promise<boolean> {
    const { connection } = this.deps;
    const keepLease = options.keepLease ? 1 : 0;
    const released = connection.run(call(release, this.keysOf(ref), { token, keepLease }));
    return connection.withTimeout(released, RELEASE_TIMEOUT_MS);
  }

  /** Whether an acquire of this partition went out and was not answered. */
  isUnanswered(ref: PartitionRef): boolean {
    return this.nonces.has(partitionId(ref.topic, ref.partition));
  }

  /**
   * Who holds each of these, as far as it can be learned now.
   * @throws the fault, when nothing could be learned
   */
  async holders(refs: readonly PartitionRef[]): Promise<Holders> {
    const { connection, isCluster, group } = this.deps;
    const size = isCluster ? 1 : HOLDERS_PER_CALL;
    const found = new Map<string, PartitionHolder>();
    const pages: Promise<void>[] = [];
    for (let i = 0; i < refs.length; i += size) {
      const page = refs.slice(i, i + size);
      const keys = page.flatMap(({ topic, partition }) => {
        const { lease, paused, pausedAll } = this.deps.keys.ownership(topic, partition, group);
        return [lease, paused, pausedAll];
      });
      pages.push(
        connection.run(callMulti(holders, keys, [])).then((answers) => {
          for (const [at, { topic, partition }] of page.entries()) {
            const { token, pttl, paused } = answers[at]!;
            const instance = token === null ? null : token.slice(0, token.lastIndexOf('#'));
            found.set(partitionId(topic, partition), { token, instance, leftMs: Math.max(0, pttl), paused });
          }
        }),
      );
    }
    const failed = (await Promise.allSettled(pages)).filter((page) => page.status === 'rejected');
    if (failed.length > 0 && failed.length === pages.length) throw failed[0]!.reason;
    const fault: unknown = failed[0]?.reason;
    return { of: ({ topic, partition }) => found.get(partitionId(topic, partition)), fault };
  }

  private keysOf({ topic, partition }: PartitionRef): GroupPartitionKeys {
    return this.deps.keys.groupPartition(topic, partition, this.deps.group);
  }
}

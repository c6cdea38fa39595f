import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { monotonicMs } from '../programs/record.js';
import { ProvenFailover, Reign } from './proven-failover.js';
import { type ReplicationInfo, replicationInfo } from './replication-info.js';

const MASTER_EVERY_MS = 20;
const REPLICA_EVERY_MS = 60;

/**
 * Looks all the time how far the history of each master has come, and notices when a replica has been promoted: from the
 * two follows which writes the new master cannot have missed.
 */
export class OffsetWatch {
  readonly failovers: ProvenFailover[] = [];
  private readonly reigns = new Map<string, Reign>();
  private readonly clients: Redis[] = [];
  private readonly loops: Promise<void>[] = [];
  private stopped = false;

  /** `scope` is asked at once when the server on `port` has been promoted: which stream keys it then was responsible for. */
  constructor(
    ports: readonly number[],
    private readonly scope: (port: number) => (streamKey: string) => boolean,
  ) {
    for (const port of ports) {
      const client = new Redis({ port, maxRetriesPerRequest: 0, retryStrategy: () => 20, disconnectTimeout: 100 });
      client.on('error', (error: NodeJS.ErrnoException) => {
        if (error.code === 'ECONNREFUSED') this.endReignsOf(port, undefined);
      });
      this.clients.push(client);
      this.loops.push(this.watch(port, client));
    }
  }

  async stop(): Promise<void> {
    this.stopped = true;
    for (const client of this.clients) client.disconnect();
    await Promise.all(this.loops);
  }

  private async watch(port: number, client: Redis): Promise<void> {
    while (!this.stopped) {
      const at = monotonicMs();
      // Away, stopped or killed: the next look says how it goes on.
      const info = await replicationInfo(client).catch(() => undefined);
      if (info !== undefined) this.enter(port, at, info);
      await sleep(info?.isMaster === false ? REPLICA_EVERY_MS : MASTER_EVERY_MS);
    }
  }

  private enter(port: number, at: number, info: ReplicationInfo): void {
    this.endReignsOf(port, info.isMaster ? info.replid : undefined);
    if (!info.isMaster) return this.enterReplica(port, info);
    let reign = this.reigns.get(info.replid);
    if (reign === undefined) {
      reign = new Reign(port);
      this.reigns.set(info.replid, reign);
      if (info.replid2 !== undefined) this.promoted(port, info.replid2, info.secondOffset);
    }
    reign.samples.push({ at, offset: info.offset });
  }

  /** A former master that the new one could accept without a full copy has begun its second history at its own end. */
  private enterReplica(port: number, { replid2 = '', secondOffset }: ReplicationInfo): void {
    const reign = this.reigns.get(replid2);
    if (reign?.port === port) reign.finalOffset ??= secondOffset - 1;
  }

  private promoted(port: number, former: string, secondOffset: number): void {
    const before = this.reigns.get(former) ?? new Reign(undefined);
    this.reigns.set(former, before);
    this.failovers.push(new ProvenFailover(before, port, secondOffset, monotonicMs(), this.scope(port)));
  }

  private endReignsOf(port: number, except: string | undefined): void {
    for (const [replid, reign] of this.reigns) {
      if (reign.port === port && replid !== except) reign.endedAt ??= monotonicMs();
    }
  }
}

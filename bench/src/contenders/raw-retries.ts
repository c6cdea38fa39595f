import type { Redis } from 'ioredis';
import type { Payload } from '../payloads.js';
import type { Consumption, Handle, Topic } from './contender.js';
import { RAW_BATCH, run, streamsOf, type RawEntry, type StreamReply } from './raw-commands.js';

const BLOCK_MS = 20;

/**
 * The commands of a retry, in batches: into a bucket with a due time, from there onto a retry stream, read again, settled.
 * Not atomic: a crash in between would lose or repeat messages. It is there to show what the commands cost.
 */
export class RawRetries implements Consumption {
  private stopping = false;
  private readonly reader: Redis;
  private readonly mover: Redis;
  private readonly loops: readonly Promise<void>[];

  constructor(
    connect: () => Redis,
    topic: Topic,
    private readonly group: string,
    private readonly handle: Handle,
    private readonly retryDelayMs: number,
  ) {
    this.reader = connect();
    this.mover = connect();
    const streams = streamsOf(topic);
    this.loops = [this.read(streams), this.move(streams)];
  }

  async close(): Promise<void> {
    this.stopping = true;
    await Promise.all(this.loops);
    this.reader.disconnect();
    this.mover.disconnect();
  }

  private async read(streams: readonly string[]): Promise<void> {
    for (const stream of streams) await this.reader.xgroup('CREATE', `${stream}:retry`, this.group, '0', 'MKSTREAM');
    const all = streams.flatMap((stream) => [stream, `${stream}:retry`]);
    const news = all.map(() => '>');
    while (!this.stopping) {
      const reply = (await this.reader.xreadgroup(
        'GROUP',
        this.group,
        'c',
        'COUNT',
        RAW_BATCH,
        'BLOCK',
        BLOCK_MS,
        'STREAMS',
        ...all,
        ...news,
      )) as StreamReply;
      if (reply !== null) await this.settle(reply);
    }
  }

  private async settle(reply: NonNullable<StreamReply>): Promise<void> {
    const pipeline = this.reader.pipeline();
    for (const [stream, entries] of reply) {
      const isRetry = stream.endsWith(':retry');
      const failed = entries.filter((entry) => !this.succeeds(entry, isRetry ? 2 : 1));
      const due = Date.now() + this.retryDelayMs;
      if (failed.length > 0) {
        // In this order: what the mover finds in the bucket has to be there.
        pipeline.hset(`${stream}:items`, ...failed.flatMap(([id, fields]) => [id, JSON.stringify(fields)]));
        pipeline.zadd(`${stream}:bucket`, ...failed.flatMap(([id]) => [due, id]));
      }
      pipeline.xack(stream, this.group, ...entries.map(([id]) => id));
      if (isRetry) pipeline.xdel(stream, ...entries.map(([id]) => id));
    }
    await run(pipeline);
  }

  private succeeds([, fields]: RawEntry, attempt: number): boolean {
    try {
      this.handle(JSON.parse(fields[fields.indexOf('payload') + 1]!) as Payload, attempt);
      return true;
    } catch {
      return false;
    }
  }

  private async move(streams: readonly string[]): Promise<void> {
    while (!this.stopping) {
      const moved = await Promise.all(streams.map((stream) => this.moveDue(stream)));
      if (moved.every((count) => count === 0)) await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  private async moveDue(stream: string): Promise<number> {
    const due = await this.mover.zrangebyscore(`${stream}:bucket`, '-inf', Date.now(), 'LIMIT', 0, RAW_BATCH);
    if (due.length === 0) return 0;
    const items = await this.mover.hmget(`${stream}:items`, ...due);
    const pipeline = this.mover.pipeline();
    for (const item of items)
      if (item !== null) pipeline.xadd(`${stream}:retry`, '*', ...(JSON.parse(item) as string[]));
    pipeline.zrem(`${stream}:bucket`, ...due);
    pipeline.hdel(`${stream}:items`, ...due);
    await run(pipeline);
    return due.length;
  }
}

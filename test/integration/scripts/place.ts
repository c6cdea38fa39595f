import { systemClock } from '../../../libs/redis-streams-mq/src/core/clock.js';
import {
  type GroupPartitionKeys,
  Keys,
  type MemberKeys,
  type TopicKeys,
} from '../../../libs/redis-streams-mq/src/core/keys.js';
import { Connection } from '../../../libs/redis-streams-mq/src/redis/connection.js';
import { createClient } from '../../../libs/redis-streams-mq/src/redis/create-client.js';
import type { RedisOption } from '../../../libs/redis-streams-mq/src/redis/redis-option.js';
import {
  type Arg,
  asEntries,
  asStreams,
  asText,
  type RawEntry,
} from '../../../libs/redis-streams-mq/src/redis/reply.js';
import { call, type ScriptCall } from '../../../libs/redis-streams-mq/src/redis/script.js';
import { moveRetries } from '../../../libs/redis-streams-mq/src/redis/scripts/retry.script.js';
import { moveDelayed, schedule } from '../../../libs/redis-streams-mq/src/redis/scripts/send.script.js';
import { dead, fail } from '../../../libs/redis-streams-mq/src/redis/scripts/settle.script.js';
import { uniqueName } from '../../support/unique-name.js';

export type Source = 'stream' | 'retryStream';

/** A connection as the module makes it; `destroy()` it. */
export async function connect(option: RedisOption): Promise<Connection> {
  const client = createClient(option, 10_000, 'scripts');
  client.on('error', () => {});
  await client.connect();
  return new Connection('scripts', client, systemClock);
}

export interface PlaceKeys extends GroupPartitionKeys, TopicKeys, MemberKeys {
  readonly topics: string;
  readonly reporter: string;
  readonly dedup: string;
  readonly wake: string;
}

let places = 0;

/** One group on one partition of a topic, under a key prefix of its own. In Cluster each place is in another slot. */
export class Place {
  readonly prefix: string = uniqueName('scripts');
  readonly group: string = 'g';
  readonly keys: PlaceKeys;
  /** With which the fenced scripts are called; `consuming()` writes it into the lease. */
  token: string = 'i1#7';

  constructor(readonly redis: Connection) {
    const keys = new Keys(`${this.prefix}:control`, `${this.prefix}:data`);
    const partition = places++;
    const topic = 'orders';
    this.keys = {
      ...keys.groupPartition(topic, partition, this.group),
      ...keys.topic(topic),
      ...keys.members(this.group),
      topics: keys.topics,
      reporter: keys.reporter,
      dedup: keys.dedup(topic, partition, 'id-1'),
      wake: keys.wake('i1', this.group),
    };
  }

  run<R>(scriptCall: ScriptCall<R>): Promise<R> {
    return this.redis.run(scriptCall);
  }

  /** The stream with `count` messages, the groups of the stream and of the retry stream, and the lease. */
  async consuming(count = 0): Promise<string[]> {
    await this.redis.send('SET', this.keys.lease, this.token, 'PX', 600_000);
    for (const source of ['stream', 'retryStream'] as const) {
      await this.redis.send('XGROUP', 'CREATE', this.keys[source], this.group, '0', 'MKSTREAM');
    }
    const ids: string[] = [];
    for (let n = 0; n < count; n++) ids.push(await this.send('payload', `message ${n}`));
    return ids;
  }

  /** `consuming`, with all of the messages read. */
  async pending(count: number, consumer = 'i1'): Promise<string[]> {
    const ids = await this.consuming(count);
    await this.read('stream', consumer);
    return ids;
  }

  /** One message pending on the retry stream after its first failure; resolves with its id there and its first one. */
  async pendingRetry(): Promise<string[]> {
    const [origin] = await this.pending(1);
    await this.fail(origin!);
    await this.move();
    const [entry] = await this.read('retryStream');
    return [entry!.id, origin!];
  }

  /** The meta of a topic with four partitions. */
  async topic(): Promise<void> {
    await this.redis.send('HSET', this.keys.meta, 'partitionCount', 4, 'incarnation', 'inc', 'createdAt', 5);
  }

  /** Adds an entry to the stream. */
  async send(...fields: Arg[]): Promise<string> {
    return asText(await this.redis.send('XADD', this.keys.stream, '*', ...fields));
  }

  /** What is new to the group on a source. */
  async read(source: Source, consumer = 'i1'): Promise<RawEntry[]> {
    const key = this.keys[source];
    const reply = await this.redis.send('XREADGROUP', 'GROUP', this.group, consumer, 'STREAMS', key, '>');
    return asStreams(reply).get(key) ?? [];
  }

  async entries(key: string): Promise<RawEntry[]> {
    return asEntries(await this.redis.send('XRANGE', key, '-', '+'));
  }

  fence(source: Source): { token: string; group: string; onRetryStream: string } {
    return { token: this.token, group: this.group, onRetryStream: source === 'retryStream' ? '1' : '0' };
  }

  from(source: Source): PlaceKeys & { source: string } {
    return { ...this.keys, source: this.keys[source] };
  }

  /** Into the bucket, due now unless said otherwise. */
  fail(id: string, source: Source = 'stream', item = id, delayMs = 0): ReturnType<Place['run']> {
    return this.run(call(fail, this.from(source), this.fence(source), [id, item, 1, delayMs, 'Error: boom']));
  }

  async dead(id: string, source: Source = 'stream', origin = id): Promise<string> {
    const metadata = ['originalMessageId', origin, 'group', this.group, 'reason', 'exhausted'];
    const reply = await this.run(call(dead, this.from(source), { ...this.fence(source), id }, metadata));
    return reply.status === 'dead' ? reply.dlqId! : reply.status;
  }

  schedule(eventId: string, at: number): ReturnType<Place['run']> {
    return this.run(call(schedule, this.keys, { eventId, mode: 'at', when: at }, ['payload', eventId]));
  }

  /** What the owner's mover does. */
  async move(): Promise<void> {
    await this.run(call(moveRetries, this.keys, { token: this.token, limit: 100 }));
    await this.run(call(moveDelayed, this.keys, { limit: 100 }));
  }
}

/** The keys a call declares. */
export function declaredKeys({ args }: ScriptCall<unknown>): string[] {
  return args.slice(1, 1 + Number(args[0])).map(String);
}

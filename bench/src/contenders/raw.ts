import { Cluster, Redis, type ChainableCommander, type RedisOptions } from 'ioredis';
import type { Message, Payload } from '../payloads.js';
import type { Consumption, Contender, ContenderContext, Handle, Producer, Topic } from './contender.js';
import { redisUrl } from './contender.js';
import { groupNames } from './group-names.js';
import { RAW_BATCH, run, streamsOf, type StreamReply } from './raw-commands.js';
import { RawRetries } from './raw-retries.js';

export type RawClient = Redis | Cluster;

const BLOCK_MS = 500;
const POLL_MS = 1;
/** As long as ours is on the wire. */
const EVENT_ID_LENGTH = 22;

/**
 * The limit: the commands that have to be sent, by ioredis and nothing else. No leases, no order after a crash, no retry
 * without a loss. A failed message is dealt with only where `retryDelayMs` asks for it.
 */
export const makeRaw = (context: ContenderContext): Contender => ({
  async create(topic) {
    const client = connect(context);
    for (const stream of streamsOf(topic)) {
      for (const group of groupNames(topic)) await client.xgroup('CREATE', stream, group, '0', 'MKSTREAM');
    }
    client.disconnect();
  },
  producer: async (topic) =>
    new RawProducer(connect(context, { enableAutoPipelining: context.settings.autoPipelining === true }), topic),
  async consume(topic, handle, { retryDelayMs }) {
    const consumptions = groupNames(topic).map((group): Consumption => {
      if (context.urls.cluster !== undefined)
        return new RawClusterConsumer(connect(context) as Cluster, topic, group, handle);
      if (retryDelayMs !== undefined)
        return new RawRetries(() => connect(context) as Redis, topic, group, handle, retryDelayMs);
      return new RawConsumer(connect(context) as Redis, topic, group, handle);
    });
    return { close: async () => void (await Promise.all(consumptions.map((consumption) => consumption.close()))) };
  },
  remove: async () => undefined,
});

function connect(context: ContenderContext, options: RedisOptions = {}): RawClient {
  const { cluster } = context.urls;
  return cluster === undefined
    ? new Redis(redisUrl(context), options)
    : new Cluster([...cluster], { enableAutoPipelining: options.enableAutoPipelining === true });
}

class RawProducer implements Producer {
  private readonly streams: string[];
  private sent = 0;

  constructor(
    private readonly client: RawClient,
    topic: Topic,
  ) {
    this.streams = streamsOf(topic);
  }

  send(message: Message): Promise<unknown> {
    const [stream, fields] = this.place(message);
    return this.client.xadd(stream, '*', ...fields);
  }

  async sendBatch(messages: readonly Message[]): Promise<void> {
    await (this.client instanceof Redis ? this.pipeline(this.client, messages) : this.pipelines(messages));
  }

  private async pipeline(client: Redis, messages: readonly Message[]): Promise<void> {
    const pipeline = client.pipeline();
    for (const message of messages) this.add(pipeline, message);
    await run(pipeline);
  }

  /** In Cluster a pipeline may name one node's keys only: one for each stream. */
  private async pipelines(messages: readonly Message[]): Promise<void> {
    const pipelines = new Map<string, ChainableCommander>();
    for (const message of messages) {
      const [stream, fields] = this.place(message);
      let pipeline = pipelines.get(stream);
      if (pipeline === undefined) pipelines.set(stream, (pipeline = this.client.pipeline()));
      pipeline.xadd(stream, '*', ...fields);
    }
    await Promise.all([...pipelines.values()].map(run));
  }

  async close(): Promise<void> {
    this.client.disconnect();
  }

  private add(pipeline: ChainableCommander, message: Message): void {
    const [stream, fields] = this.place(message);
    pipeline.xadd(stream, '*', ...fields);
  }

  private place({ key, payload }: Message): [stream: string, fields: string[]] {
    const number = this.sent++;
    const stream = this.streams[number % this.streams.length]!;
    const eventId = String(number).padStart(EVENT_ID_LENGTH, '0');
    return [stream, ['payload', JSON.stringify(payload), 'key', key, 'eventId', eventId]];
  }
}

/** One loop over all partitions. An acknowledgement is sent with the next read, and not waited for. */
class RawConsumer implements Consumption {
  private stopping = false;
  private readonly loop: Promise<void>;

  constructor(
    private readonly client: Redis,
    topic: Topic,
    private readonly group: string,
    private readonly handle: Handle,
  ) {
    this.loop = this.run(streamsOf(topic));
  }

  async close(): Promise<void> {
    this.stopping = true;
    await this.loop;
    this.client.disconnect();
  }

  private async run(streams: readonly string[]): Promise<void> {
    const news = streams.map(() => '>');
    let acknowledged: Promise<unknown> = Promise.resolve();
    while (!this.stopping) {
      const reply = (await this.client.xreadgroup(
        'GROUP',
        this.group,
        'c',
        'COUNT',
        RAW_BATCH,
        'BLOCK',
        BLOCK_MS,
        'STREAMS',
        ...streams,
        ...news,
      )) as StreamReply;
      if (reply === null) continue;
      await acknowledged;
      const pipeline = this.client.pipeline();
      for (const [stream, entries] of reply) {
        for (const [, fields] of entries) this.handle(JSON.parse(fields[1]!) as Payload, 1);
        pipeline.xack(stream, this.group, ...entries.map(([id]) => id));
      }
      acknowledged = run(pipeline);
    }
    await acknowledged;
  }
}

/** In Cluster a read names one partition: a loop for each, without blocking, on the connections that all share. */
class RawClusterConsumer implements Consumption {
  private stopping = false;
  private readonly loops: readonly Promise<void>[];

  constructor(
    private readonly client: Cluster,
    topic: Topic,
    private readonly group: string,
    private readonly handle: Handle,
  ) {
    this.loops = streamsOf(topic).map((stream) => this.run(stream));
  }

  async close(): Promise<void> {
    this.stopping = true;
    await Promise.all(this.loops);
    this.client.disconnect();
  }

  private async run(stream: string): Promise<void> {
    let acknowledged: Promise<unknown> = Promise.resolve();
    while (!this.stopping) {
      const reply = (await this.client.xreadgroup(
        'GROUP',
        this.group,
        'c',
        'COUNT',
        RAW_BATCH,
        'STREAMS',
        stream,
        '>',
      )) as StreamReply;
      await acknowledged;
      if (reply === null) {
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
        continue;
      }
      const entries = reply[0]![1];
      for (const [, fields] of entries) this.handle(JSON.parse(fields[1]!) as Payload, 1);
      acknowledged = this.client.xack(stream, this.group, ...entries.map(([id]) => id));
    }
    await acknowledged;
  }
}

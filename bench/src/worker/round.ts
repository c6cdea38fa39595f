import { openContender } from '../contenders/contenders.js';
import type { Consumption, Contender, ConsumeOptions, Handle, Producer, Topic } from '../contenders/contender.js';
import { makeMessages, type Message, type PayloadSize } from '../payloads.js';
import type { Entry, Figures, Scenario, Stopwatch, TopicSpec, Trial } from '../scenario.js';
import type { WorkerSettings } from './protocol.js';
import type { Profiler } from './profiler.js';
import { startStopwatch } from './stopwatch.js';

const FILL_BATCH = 1_000;

let topicNumber = 0;

/** One round of one entry. What the scenario opened and did not close is closed at its end. */
export class Round implements Trial {
  readonly entry: Entry;
  readonly quick: boolean;
  readonly urls;
  private readonly opened: { close(): Promise<void> }[] = [];
  private readonly topics: Topic[] = [];
  private loaded: Promise<Contender> | undefined;

  constructor(
    private readonly settings: WorkerSettings,
    entry: Entry,
    readonly isWarmUp: boolean,
    private readonly profiler: Profiler | undefined,
  ) {
    this.entry = entry;
    this.quick = settings.quick;
    this.urls = settings.urls;
  }

  async run(scenario: Scenario): Promise<Figures> {
    try {
      return await scenario.measure(this);
    } finally {
      await Promise.all(this.opened.map((open) => open.close()));
      for (const topic of this.topics) await (await this.contender()).remove(topic);
    }
  }

  count(full: number, quick: number): number {
    return Math.max(1, Math.round((this.quick ? quick : full) * (this.entry.share ?? 1)));
  }

  messages(count: number, size?: PayloadSize): Message[] {
    return makeMessages(count, size);
  }

  async topic({ partitions = 4, groups = 1, suits }: TopicSpec = {}): Promise<Topic> {
    let name: string;
    do name = `bench-${process.pid}-${topicNumber++}`;
    while (suits !== undefined && !(await suits(name)));
    const topic: Topic = { name, partitions, groups };
    await (await this.contender()).create(topic);
    this.topics.push(topic);
    return topic;
  }

  async producer(topic: Topic): Promise<Producer> {
    return this.track(await (await this.contender()).producer(topic));
  }

  async fill(topic: Topic, messages: readonly Message[]): Promise<void> {
    const producer = await this.producer(topic);
    for (let at = 0; at < messages.length; at += FILL_BATCH)
      await producer.sendBatch(messages.slice(at, at + FILL_BATCH));
    await producer.close();
  }

  async consume(topic: Topic, handle: Handle, options: ConsumeOptions = {}): Promise<Consumption> {
    return this.track(await (await this.contender()).consume(topic, handle, options));
  }

  stopwatch(): Stopwatch {
    return startStopwatch(this.settings.serverPids, this.isWarmUp ? undefined : this.profiler);
  }

  private contender(): Promise<Contender> {
    const { urls, durability } = this.settings;
    const { contender, settings = {} } = this.entry;
    return (this.loaded ??= openContender(contender, { urls, durability, settings }));
  }

  private track<T extends { close(): Promise<void> }>(opened: T): T {
    let closing: Promise<void> | undefined;
    const close = opened.close.bind(opened);
    opened.close = () => (closing ??= close());
    this.opened.push(opened);
    return opened;
  }
}

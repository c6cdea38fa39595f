import type { Keys } from '../core/keys.js';
import { RETENTION_BOUNDS, type RetentionChange, type TopicRetention } from '../core/topic-retention.js';
import type { Connection } from './connection.js';
import { asArray, asTextOrNull } from './reply.js';
import { call } from './script.js';
import { setRetention } from './scripts/retention.script.js';

/** How long topics keep messages: what the options say, and for each topic what its meta says instead. */
export class RetentionSettings {
  constructor(
    private readonly connection: Connection,
    private readonly keys: Keys,
    /** Of the options. */
    private readonly defaults: TopicRetention,
  ) {}

  async of(topic: string): Promise<TopicRetention> {
    return { ...this.defaults, ...(await this.own(topic)) };
  }

  /** What the topic has of its own. */
  async own(topic: string): Promise<Partial<TopicRetention>> {
    const fields = RETENTION_BOUNDS.map((bound) => `retention:${bound}`);
    const stored = asArray(await this.connection.send('HMGET', this.keys.topic(topic).meta, ...fields)).map(
      asTextOrNull,
    );
    const own: Record<string, number> = {};
    for (const [i, bound] of RETENTION_BOUNDS.entries()) {
      const value = Number(stored[i] ?? NaN);
      if (Number.isSafeInteger(value) && value >= 0) own[bound] = value;
    }
    return own;
  }

  /** False when the topic is not there. */
  set(topic: string, change: RetentionChange): Promise<boolean> {
    const args = Object.entries(change).flatMap(([bound, value]) => (value === undefined ? [] : [bound, value ?? '']));
    return this.connection.run(call(setRetention, this.keys.topic(topic), {}, args));
  }
}

import type { Redis } from 'ioredis';
import type { Clock } from '../core/clock.js';
import { thrownText } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import type { Connections } from './connections.js';
import { classifyRedisError, isRedisTimeout } from './redis-errors.js';

/** What members tell each other; a lost one costs time, never correctness. */
export type Announcement =
  | { readonly type: 'joined' | 'left'; readonly group: string; readonly instance: string }
  | {
      readonly type: 'released';
      readonly group: string;
      readonly instance: string;
      readonly topic: string;
      readonly partition: number;
      readonly heir: string | null;
    }
  | {
      readonly type: 'due';
      readonly topic: string;
      readonly partition: number;
      readonly group: string | null;
      readonly due: number;
    }
  /** What is known of the topic should be looked at again. */
  | {
      readonly type: 'topic';
      readonly topic: string;
      readonly change: 'paused' | 'resumed' | 'created' | 'raised' | 'deleted';
    };

export interface AnnouncementsDeps {
  readonly connections: Connections;
  readonly channel: string;
  readonly events: MqEvents;
  readonly clock: Clock;
  /** How often the subscription is looked at, in milliseconds. */
  readonly checkIntervalMs: number;
  /** A look without an answer for that long means that the connection is dead, in milliseconds. */
  readonly timeoutMs: number;
}

/** Pub/sub between the instances. Where an ACL forbids it the timers do the work, and a warning says so once. */
export class Announcements {
  private readonly listeners = new Set<(announcement: Announcement) => void>();
  private readonly resubscribed = new Set<() => void>();
  private started = false;
  private warned = false;

  constructor(private readonly deps: AnnouncementsDeps) {}

  onAnnouncement(listener: (announcement: Announcement) => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  /** Called after each (re)subscription: what was announced meanwhile was not heard. */
  onResubscribed(listener: () => void): () => void {
    this.resubscribed.add(listener);
    return () => void this.resubscribed.delete(listener);
  }

  start(): void {
    if (this.started) return;
    this.started = true;
    const client = this.deps.connections.subscriber.client as Redis;
    client.on('messageBuffer', (_channel: Buffer, message: Buffer) => this.receive(message));
    client.on('ready', () => this.subscribe(client));
    if (client.status === 'ready') this.subscribe(client);
    this.checkLater(client);
  }

  /** Best effort: never rejects and is not awaited by those who announce. */
  publish(announcement: Announcement): void {
    this.deps.connections.command
      .send('PUBLISH', this.deps.channel, JSON.stringify(announcement))
      .catch((error: unknown) => this.refused(error));
  }

  private subscribe(client: Redis): void {
    client.subscribe(this.deps.channel).then(
      () => {
        for (const listener of this.resubscribed) listener();
      },
      (error: unknown) => this.refused(error),
    );
  }

  private checkLater(client: Redis): void {
    const { connections, clock, checkIntervalMs } = this.deps;
    clock.setTimer(() => {
      if (connections.subscriber.isDestroyed) return;
      void this.check(client).then(() => this.checkLater(client));
    }, checkIntervalMs);
  }

  /**
   * Nothing is sent on a subscription, so nobody notices when its connection dies without a word. Subscribing once more
   * changes nothing and has an answer, and in Cluster, unlike PING, it goes to the node that is subscribed to.
   */
  private async check(client: Redis): Promise<void> {
    const { connections, channel, timeoutMs } = this.deps;
    if (!connections.subscriber.isReady) return;
    try {
      await connections.subscriber.withTimeout(client.subscribe(channel), timeoutMs);
    } catch (error) {
      if (isRedisTimeout(error) && connections.subscriber.isReady) client.disconnect(true);
      else this.refused(error);
    }
  }

  private refused(error: unknown): void {
    if (this.warned || classifyRedisError(error) !== 'configuration') return;
    this.warned = true;
    this.deps.events.emit('warning', {
      message: 'pub/sub is not allowed; ownership changes are noticed by timers alone, which is slower',
      fields: { channel: this.deps.channel, error: thrownText(error) },
    });
  }

  private receive(message: Buffer): void {
    let announcement: Announcement;
    try {
      announcement = JSON.parse(message.toString('utf8')) as Announcement;
    } catch {
      return; // Someone else's message on our channel.
    }
    if (typeof announcement !== 'object' || announcement === null) return;
    for (const listener of this.listeners) listener(announcement);
  }
}

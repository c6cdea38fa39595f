import type { Redis } from 'ioredis';
import { thrownText } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import type { Connections } from './connections.js';
import { classifyRedisError } from './redis-errors.js';

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
    };

export interface AnnouncementsDeps {
  readonly connections: Connections;
  readonly channel: string;
  readonly events: MqEvents;
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

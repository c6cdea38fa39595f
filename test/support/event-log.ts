import type { MqEventMap, MqEventName, MqEvents } from '../../libs/redis-streams-mq/src/core/events.js';
import { nowMs } from './handling-record.js';

/** What an instance said about itself, in order. */
export class EventLog {
  private readonly seen: { readonly name: MqEventName; readonly payload: unknown; readonly at: number }[] = [];

  /** Listens to `names` from now on. */
  static of(events: MqEvents, ...names: MqEventName[]): EventLog {
    const log = new EventLog();
    for (const name of names) events.on(name, (payload) => log.add(name, payload));
    return log;
  }

  add(name: MqEventName, payload: unknown, at = nowMs()): void {
    this.seen.push({ name, payload, at });
  }

  all<E extends MqEventName>(name: E): MqEventMap[E][] {
    return this.seen.filter((event) => event.name === name).map((event) => event.payload as MqEventMap[E]);
  }

  /** With the time of each, on the clock of `nowMs`. */
  timed<E extends MqEventName>(name: E): (MqEventMap[E] & { readonly at: number })[] {
    const events = this.seen.filter((event) => event.name === name);
    return events.map(({ payload, at }) => ({ ...(payload as MqEventMap[E]), at }));
  }

  count(name: MqEventName): number {
    return this.all(name).length;
  }
}

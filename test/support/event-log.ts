import type { MqEventMap, MqEventName, MqEvents } from '../../libs/redis-streams-mq/src/core/events.js';

/** What an instance said about itself, in order. */
export class EventLog {
  private readonly seen: { readonly name: MqEventName; readonly payload: unknown }[] = [];

  /** Listens to `names` from now on. */
  static of(events: MqEvents, ...names: MqEventName[]): EventLog {
    const log = new EventLog();
    for (const name of names) events.on(name, (payload) => log.add(name, payload));
    return log;
  }

  add(name: MqEventName, payload: unknown): void {
    this.seen.push({ name, payload });
  }

  all<E extends MqEventName>(name: E): MqEventMap[E][] {
    return this.seen.filter((event) => event.name === name).map((event) => event.payload as MqEventMap[E]);
  }

  count(name: MqEventName): number {
    return this.all(name).length;
  }
}

import { Injectable, type Type } from '@nestjs/common';
import { StreamHandler, type StreamContext } from 'nestjs-redis-streams-mq';
import { CallJournal } from '../ipc/call-journal.js';
import { ResultStore } from '../ipc/result-store.js';

export const KEY_COUNTS_GROUP = 'key-counts';
/** What lines without a key are counted under. */
export const NO_KEY = '(no key)';

/** A handler class that counts the messages per key of a topic known only at run time. */
export function keyCountsHandler(topic: string): Type {
  @Injectable()
  class KeyCountsHandler {
    constructor(
      private readonly journal: CallJournal,
      private readonly results: ResultStore,
    ) {}

    @StreamHandler(topic, KEY_COUNTS_GROUP)
    onLine(_line: unknown, ctx: StreamContext): Promise<void> {
      return this.journal.record(ctx, () => this.results.add(ctx, ctx.key ?? NO_KEY, 1));
    }
  }
  return KeyCountsHandler;
}

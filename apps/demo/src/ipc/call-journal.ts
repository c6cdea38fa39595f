import { Injectable } from '@nestjs/common';
import { DeadLetter, type StreamContext } from 'nestjs-redis-streams-mq';
import { monotonicMicros } from '../monotonic-micros.js';
import { CoordinatorLink } from './coordinator-link.js';
import type { HandlerCall } from './ipc-messages.js';

/** The header with the position of a message in the order of publishing; the demo checks order by it. */
export const ROW_HEADER = 'row';

export function rowOf(ctx: StreamContext): number {
  return Number(ctx.headers[ROW_HEADER]);
}

/** Tells the coordinator of every handler call, and changes nothing about it. Only the demo's tables need it. */
@Injectable()
export class CallJournal {
  constructor(private readonly coordinator: CoordinatorLink) {}

  async record(ctx: StreamContext, handle: () => Promise<void>): Promise<void> {
    const startedAt = monotonicMicros();
    let outcome: HandlerCall['outcome'] = 'handled';
    try {
      await handle();
    } catch (error) {
      outcome = error instanceof DeadLetter ? 'rejected' : 'failed';
      throw error;
    } finally {
      const { group } = ctx;
      this.coordinator.report({ group, row: rowOf(ctx), outcome, startedAt, endedAt: monotonicMicros() });
    }
  }
}

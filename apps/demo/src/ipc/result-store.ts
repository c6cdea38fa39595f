import { Injectable } from '@nestjs/common';
import type { StreamContext } from 'nestjs-redis-streams-mq';
import { CoordinatorLink } from './coordinator-link.js';

/**
 * Where the demo's handlers write, in place of a database. Messages are delivered at least once, so each write carries
 * the event id and storing the same event again changes nothing: in SQL, a unique index and `ON CONFLICT DO NOTHING`.
 */
@Injectable()
export class ResultStore {
  constructor(private readonly coordinator: CoordinatorLink) {}

  add(ctx: StreamContext, key: string, value: number): Promise<void> {
    return this.coordinator.store({ group: ctx.group, eventId: ctx.eventId, key, value });
  }
}

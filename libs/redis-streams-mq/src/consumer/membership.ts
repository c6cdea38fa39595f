import type { Member } from '../core/assignment.js';
import type { Clock } from '../core/clock.js';
import type { MemberKeys } from '../core/keys.js';
import { describeMember, parseMember } from '../core/member-description.js';
import type { Connection } from '../redis/connection.js';
import { call } from '../redis/script.js';
import { heartbeat } from '../redis/scripts/members.script.js';
import type { ServerClock } from './server-clock.js';

export interface MembershipDeps {
  readonly connection: Connection;
  readonly keys: MemberKeys;
  readonly clock: Clock;
  readonly serverClock: ServerClock;
  /** This instance, and what it tells the others about itself. */
  readonly self: Member;
  readonly ttlMs: number;
}

/** One instance's membership of one group. */
export class Membership {
  constructor(private readonly deps: MembershipDeps) {}

  /** Says that this instance lives, and returns all that do, itself included. */
  async beat(): Promise<Member[]> {
    const { connection, keys, clock, serverClock, self, ttlMs } = this.deps;
    const sentAt = clock.now();
    const reply = await connection.run(
      call(heartbeat, keys, { instance: self.id, about: describeMember(self), ttl: ttlMs }),
    );
    serverClock.observe(reply.now, sentAt);
    return [...reply.members].map(([id, about]) => parseMember(id, about));
  }

  async leave(): Promise<void> {
    const { connection, keys, self } = this.deps;
    await connection.pipeline([
      ['ZREM', keys.members, self.id],
      ['HDEL', keys.info, self.id],
    ]);
  }
}

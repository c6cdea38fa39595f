import type { Member } from '../core/assignment.js';
import type { Clock } from '../core/clock.js';
import type { PartitionShare } from '../core/handler.js';
import type { MemberKeys } from '../core/keys.js';
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
  private readonly about: string;

  constructor(private readonly deps: MembershipDeps) {
    this.about = describeMember(deps.self);
  }

  /** Says that this instance lives, and returns all that do, itself included. */
  async beat(): Promise<Member[]> {
    const { connection, keys, clock, serverClock, self, ttlMs } = this.deps;
    const sentAt = clock.now();
    const reply = await connection.run(call(heartbeat, keys, { instance: self.id, about: this.about, ttl: ttlMs }));
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

function describeMember({ cap, subscriptions }: Member): string {
  return JSON.stringify({
    cap,
    topics: [...subscriptions].map(([topic, { modulo, remainder }]) => [topic, modulo, remainder]),
  });
}

/** What another instance said; one that cannot be read counts as a member that wants nothing. */
function parseMember(id: string, about: string): Member {
  const subscriptions = new Map<string, PartitionShare>();
  let cap = 0;
  try {
    const parsed = JSON.parse(about) as { cap?: unknown; topics?: unknown };
    if (Number.isSafeInteger(parsed.cap) && (parsed.cap as number) > 0) cap = parsed.cap as number;
    for (const item of Array.isArray(parsed.topics) ? (parsed.topics as unknown[]) : []) {
      const [topic, modulo, remainder] = Array.isArray(item) ? (item as unknown[]) : [];
      if (typeof topic !== 'string') continue;
      const valid = Number.isSafeInteger(modulo) && (modulo as number) > 0 && Number.isSafeInteger(remainder);
      subscriptions.set(
        topic,
        valid ? { modulo: modulo as number, remainder: remainder as number } : { modulo: 1, remainder: 0 },
      );
    }
  } catch {
    subscriptions.clear();
  }
  return { id, cap, subscriptions };
}

import type { Failover } from './servers.js';

/** How long a reply of the old master may lie unread in a client that is busy. */
const UNREAD_MS = 250;

/** One server as master, from its promotion (or start) to its end. */
export class Reign {
  /** In order of time; `at` is when the server was asked: what had been answered before is within `offset`. */
  readonly samples: { readonly at: number; readonly offset: number }[] = [];
  /** When it was seen dead or demoted. */
  endedAt: number | undefined;
  /** Where its history ended, if that is known: a demoted master says so when it could go on from there as a replica. */
  finalOffset: number | undefined;

  constructor(readonly port: number | undefined) {}

  /** An offset that no write answered at `at` can be beyond; `undefined` when nobody asked since. */
  boundAt(at: number): number | undefined {
    let low = 0;
    let high = this.samples.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.samples[middle]!.at < at) low = middle + 1;
      else high = middle;
    }
    return this.samples[low]?.offset ?? this.finalOffset;
  }
}

/** A replica has taken over: it has the old master's history up to `secondOffset`, and nothing behind it. */
export class ProvenFailover implements Failover {
  readonly from: number;

  constructor(
    private readonly before: Reign,
    private readonly port: number,
    private readonly secondOffset: number,
    promotedAt: number,
    private readonly concerns: (streamKey: string) => boolean,
  ) {
    const safe = before.samples.findLast(({ offset }) => offset < secondOffset);
    this.from = Math.min(promotedAt, safe?.at ?? promotedAt);
  }

  /** An old master that was only stopped may go on taking writes after the promotion, until it is demoted. */
  get to(): number {
    return (this.before.endedAt ?? Infinity) + UNREAD_MS;
  }

  mayHaveLost(streamKey: string, at: number): boolean {
    if (at > this.to || !this.concerns(streamKey)) return false;
    const bound = this.before.boundAt(at);
    return bound === undefined || bound >= this.secondOffset;
  }

  get proof(): string {
    const { port, samples, finalOffset } = this.before;
    const last = finalOffset ?? samples.at(-1)?.offset ?? 'an unknown offset';
    const seen = finalOffset === undefined ? 'was last seen at' : 'ended at';
    return `${this.port} took over up to offset ${this.secondOffset - 1}; ${port ?? 'the master before'} ${seen} ${last}`;
  }
}

import type { Life } from '../child.js';
import type { Fault } from '../faults/catalog.js';
import type { Outcome, TortureRecord, Witnessed } from '../programs/record.js';
import type { Failover } from '../servers/servers.js';
import type { BuriedMessage, Evidence, StoredMessage } from './evidence.js';

export const GROUP = 'g';
export const OWNER = 'consumer-1#1';
export const HEIR = 'consumer-2#1';

/** For tests of the checker, a run made by hand: messages 1..n of key `k`, sent, stored and handled in order by one owner. */
export class Story {
  readonly records: Witnessed[] = [];
  readonly stored: StoredMessage[] = [];
  readonly buried: BuriedMessage[] = [];
  readonly faults: Fault[] = [];
  readonly failovers: Failover[] = [];
  readonly mishaps: string[] = [];
  readonly lives: Life[] = [OWNER, HEIR].map((process) => ({
    process,
    from: 0,
    to: 100_000,
    wish: 'end',
    end: 'SIGTERM',
    output: '',
  }));
  private calls = 0;

  constructor(readonly messages: number) {
    this.lease(OWNER, 0, 'acquired', 1);
    for (let seq = 1; seq <= messages; seq++) {
      this.send(seq);
      this.handle(seq, 1_000 * seq);
    }
  }

  send(seq: number): void {
    const sent = { at: 1_000 * seq - 1, key: 'k', seq, eventId: `e${seq}`, process: 'producer-1#1' };
    this.records.push({ ...sent, type: 'sending' }, { ...sent, type: 'accepted', partition: 0, id: `${seq}-0` });
    this.stored.push({ key: 'k', seq, eventId: `e${seq}`, partition: 0, id: `${seq}-0` });
  }

  handle(seq: number, at: number, how: Partial<HowHandled> = {}): void {
    const { process = OWNER, epoch = 1, attempt = 1, takesMs = 10, outcome = 'success', eventId = `e${seq}` } = how;
    const call = this.calls++;
    const message = { topic: 't', group: GROUP, partition: 0, id: `${seq}-0`, key: 'k', seq, eventId };
    this.records.push({ type: 'started', at, call, ...message, attempt, epoch, process });
    if (outcome !== 'cut') this.records.push({ type: 'ended', at: at + takesMs, call, outcome, process });
  }

  lease(process: string, at: number, change: 'acquired' | 'lost', epoch: number): void {
    this.records.push({ type: 'lease', at, change, group: GROUP, partition: 0, epoch, why: '', process });
  }

  /** What was handled is forgotten, from this one on. */
  unhandle(from: number): void {
    const calls = new Set<number>();
    for (const record of this.records) if (record.type === 'started' && record.seq >= from) calls.add(record.call);
    const isOf = (record: TortureRecord): boolean =>
      (record.type === 'started' || record.type === 'ended') && calls.has(record.call);
    this.records.splice(0, Infinity, ...this.records.filter((record) => !isOf(record)));
  }

  fault(kind: Fault['kind'], target: string, from: number, to: number): void {
    this.faults.push({ kind, target, from, to, detail: '', missed: false });
  }

  refuse(seq: number, at: number, code: string, why = ''): void {
    const sent = { at, key: 'k', seq, eventId: `e${seq}`, process: 'producer-1#1' };
    this.records.push({ ...sent, type: 'sending' }, { ...sent, type: 'refused', code, why });
  }

  /** The new master did not have what was written from `lostFrom` on. */
  failover(lostFrom: number, from: number, to: number): void {
    this.fault('failover', 'redis', from, to);
    const mayHaveLost = (key: string, at: number): boolean => key === 'stream:0' && at >= lostFrom && at <= to;
    this.failovers.push({ from, to, mayHaveLost, proof: '' });
  }

  bury(seq: number, reason: BuriedMessage['reason'], attempts: number): void {
    this.buried.push({ key: 'k', seq, eventId: `e${seq}`, group: GROUP, partition: 0, reason, attempts });
  }

  get evidence(): Evidence {
    const records = this.records.toSorted((a, b) => a.at - b.at);
    const { stored, buried, faults, failovers, mishaps, lives } = this;
    const streamKey = (partition: number): string => `stream:${partition}`;
    const rest = { groups: [GROUP], maxAttempts: 5, leaseMs: 2_000, from: 0, to: 100_000, streamKey };
    return { records, stored, buried, faults, failovers, mishaps, lives, ...rest };
  }
}

interface HowHandled {
  process: string;
  epoch: number;
  attempt: number;
  takesMs: number;
  outcome: Outcome | 'cut';
  eventId: string;
}

/** The owner is stopped while it handles message 3 of 5; another takes over and goes on. */
export function takeover(): Story {
  const story = new Story(5);
  story.unhandle(3);
  story.fault('stop-consumer', 'consumer-1', 3_001, 6_000);
  story.handle(3, 3_000, { takesMs: 3_010 });
  story.lease(HEIR, 5_500, 'acquired', 2);
  for (const seq of [3, 4, 5]) story.handle(seq, 5_500 + 20 * seq, { process: HEIR, epoch: 2 });
  story.lease(OWNER, 6_005, 'lost', 1);
  return story;
}

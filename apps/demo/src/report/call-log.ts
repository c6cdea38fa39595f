import { createHistogram } from 'node:perf_hooks';
import type { HandlerCall } from '../ipc/ipc-messages.js';
import { countOutOfOrder } from './key-order.js';

/** One message that the queue has accepted, by its position in the order of publishing. */
export interface SentMessage {
  readonly key: string | null;
  /** `monotonicMicros` when `send` was called. */
  readonly sentAt: number;
}

/** What a group did, in figures. */
export interface GroupFigures {
  readonly handled: number;
  readonly handledByInstance: ReadonlyMap<number, number>;
  readonly retried: number;
  readonly duplicates: number;
  readonly keysOutOfOrder: number;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Every message sent and every handler call, and the figures that follow from them. */
export class CallLog {
  private readonly sent = new Map<number, SentMessage>();
  private readonly groups: ReadonlyMap<string, GroupCalls>;

  constructor(groups: readonly string[]) {
    this.groups = new Map(groups.map((group) => [group, new GroupCalls(this.sent)]));
  }

  /** Called before the message is sent, because it may be handled before the sending is confirmed. */
  sending(row: number, message: SentMessage): void {
    this.sent.set(row, message);
  }

  /** The message was not sent after all. */
  notSent(row: number): void {
    this.sent.delete(row);
  }

  add(instance: number, call: HandlerCall): void {
    this.group(call.group).add(instance, call);
  }

  get sentCount(): number {
    return this.sent.size;
  }

  /** Messages that a group has handled or rejected. */
  settledCount(group: string): number {
    return this.group(group).settled.size;
  }

  handledCount(group: string): number {
    return this.group(group).handled.size;
  }

  callCount(group: string): number {
    return this.group(group).calls;
  }

  /** Messages of which at least one attempt failed. */
  retriedRows(group: string): ReadonlySet<number> {
    return this.group(group).failedRows;
  }

  figures(group: string): GroupFigures {
    return this.group(group).figures();
  }

  private group(name: string): GroupCalls {
    const group = this.groups.get(name);
    if (!group) throw new Error(`a call of the unknown group "${name}"`);
    return group;
  }
}

class GroupCalls {
  readonly handled = new Set<number>();
  readonly settled = new Set<number>();
  readonly failedRows = new Set<number>();
  calls = 0;
  private readonly firstStarts = new Map<number, number>();
  private readonly byInstance = new Map<number, number>();
  private readonly latency = createHistogram();
  private failed = 0;
  private duplicates = 0;
  private lastEndedAt = 0;

  constructor(private readonly sent: ReadonlyMap<number, SentMessage>) {}

  add(instance: number, call: HandlerCall): void {
    this.calls++;
    const known = this.firstStarts.get(call.row);
    if (known === undefined || call.startedAt < known) this.firstStarts.set(call.row, call.startedAt);
    if (call.outcome === 'failed') {
      this.failed++;
      this.failedRows.add(call.row);
      return;
    }
    this.settled.add(call.row);
    if (call.outcome === 'rejected') return;
    if (this.handled.has(call.row)) {
      this.duplicates++;
      return;
    }
    this.handled.add(call.row);
    this.byInstance.set(instance, (this.byInstance.get(instance) ?? 0) + 1);
    this.lastEndedAt = Math.max(this.lastEndedAt, call.endedAt);
    const sentAt = this.sent.get(call.row)?.sentAt ?? call.endedAt;
    // The histogram takes whole numbers from 1.
    this.latency.record(Math.max(1, call.endedAt - sentAt));
  }

  figures(): GroupFigures {
    const firstSentAt = this.sent.values().next().value?.sentAt ?? 0;
    const seconds = (this.lastEndedAt - firstSentAt) / 1e6;
    return {
      handled: this.handled.size,
      handledByInstance: this.byInstance,
      retried: this.failed,
      duplicates: this.duplicates,
      keysOutOfOrder: countOutOfOrder(this.firstDeliveries()),
      perSecond: seconds > 0 ? this.handled.size / seconds : 0,
      p50Ms: this.latency.percentile(50) / 1000,
      p99Ms: this.latency.percentile(99) / 1000,
    };
  }

  private *firstDeliveries() {
    for (const [row, startedAt] of this.firstStarts) yield { row, startedAt, key: this.sent.get(row)?.key ?? null };
  }
}

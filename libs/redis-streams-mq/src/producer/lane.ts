import type { Clock, Timer } from '../core/clock.js';
import { MqError, MqSendError, thrownText } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import { Backoff } from '../core/retry-policy.js';
import { streamIdTime } from '../core/stream-id.js';
import { classifyRedisError, isConnectionError, replyCode, wasNotSent } from '../redis/redis-errors.js';
import { asArray, asEntries, asNumber } from '../redis/reply.js';
import { LaneWire, type LaneWireDeps, type StoredResult, type WireResult } from './lane-wire.js';
import type { PreparedMessage } from './outgoing-message.js';

/** One message on its way: settled exactly once. */
export interface LaneItem {
  readonly message: PreparedMessage;
  /** On the monotonic clock, in milliseconds. */
  readonly deadline: number;
  readonly resolve: (result: StoredResult) => void;
  readonly reject: (error: MqSendError) => void;
  /** Hears the partition before the item settles. */
  readonly placed: (partition: number) => void;
  /** It may be stored: it was sent, and nothing said since that it was not stored. */
  sent: boolean;
  /** An earlier try had no answer, and only a later try of its script can tell what became of it. */
  doubtful: boolean;
  settled: boolean;
}

export interface LaneDeps extends LaneWireDeps {
  readonly clock: Clock;
  readonly events: MqEvents;
  /**
   * The stream is not there: makes it again, or rejects with the reason why not. False when the topic is there and has no
   * such partition any more.
   */
  readonly restoreTopic: () => Promise<boolean>;
  /** Takes what this lane cannot send, in order, and sends it where the topic has it now. */
  readonly moveOn: (items: readonly LaneItem[]) => void;
}

/** Codes of sends that cannot succeed later either. */
export const FINAL: ReadonlySet<string> = new Set(['MQ_CLOSED', 'MQ_TOPIC_NOT_FOUND', 'MQ_TOPIC_DELETED']);

const MAX_BATCH = 500;
const MAX_BATCH_BYTES = 1_048_576;
/** Entries may be as large as `maxPayloadBytes`. */
const VERIFY_PAGE = 200;
/** How far the server's clock may run ahead of ours between a send and the look for it. */
const CLOCK_SLACK_MS = 60_000;
const MAX_VERIFY_PAGES = 500;

/**
 * Sends to one partition, in call order. One batch is in flight; the next collects meanwhile.
 *
 * A batch whose answer was lost is looked for behind the last id known to be stored before it: what is there resolves,
 * what is not there is sent again. Since nothing of this lane was sent after it, order holds through reconnects.
 */
export class Lane {
  private queue: LaneItem[] = [];
  private running = false;
  private closed = false;
  private timer: Timer | undefined;
  private timerAt = Infinity;
  private inFlight: LaneItem[] = [];
  private lastId: string | undefined;
  /** When `lastId` was stored by this lane, on the monotonic clock: together they tell what time the server has by now. */
  private lastStoredAt: number | undefined;
  /** On the monotonic clock, in milliseconds. */
  private batchSentAt = 0;
  /** Redis refused for a while: one message goes ahead, or the end of that in mid-batch would let later ones overtake. */
  private probing = false;
  private readonly backoff = new Backoff({ minMs: 20, maxMs: 1_000 });
  private readonly stream: string;
  private readonly wire: LaneWire;

  constructor(private readonly deps: LaneDeps) {
    this.stream = deps.keys.stream(deps.topic, deps.partition);
    this.wire = new LaneWire(deps);
  }

  get size(): number {
    return this.queue.length + this.inFlight.length;
  }

  push(item: LaneItem): void {
    this.queue.push(item);
    this.watchDeadline(item.deadline);
    if (!this.running) {
      this.running = true;
      // After this turn of the caller, so that what is sent in one go travels in one batch.
      queueMicrotask(() => void this.run());
    }
  }

  /** Rejects what waits; what is under way keeps its deadline, as long as there is a connection. */
  close(): void {
    this.closed = true;
    for (const item of this.queue) this.abandon(item);
    this.queue = [];
  }

  private async run(): Promise<void> {
    const { connection, clock } = this.deps;
    while (this.queue.length > 0) {
      if (connection.isDestroyed) {
        this.close();
        break;
      }
      if (!connection.isReady) {
        await connection.whenReady(Math.max(1, this.timerAt - clock.monotonic()));
        continue;
      }
      try {
        this.lastId ??= await this.readTail();
        this.inFlight = this.takeBatch();
        this.batchSentAt = clock.monotonic();
        await this.sendBatch(this.inFlight);
      } catch (error) {
        await this.failed(error);
      }
      this.inFlight = [];
    }
    this.running = false;
  }

  /** Messages of one kind, so that a script the server does not know fails for all of a batch or for none. */
  private takeBatch(): LaneItem[] {
    const kind = this.queue[0]!.message.delivery.kind;
    const limit = this.probing ? 1 : MAX_BATCH;
    let bytes = 0;
    let count = 0;
    for (const item of this.queue) {
      if (count === limit || item.message.delivery.kind !== kind || (count > 0 && bytes > MAX_BATCH_BYTES)) break;
      for (const field of item.message.fields) bytes += field.length;
      count++;
    }
    return this.queue.splice(0, count).filter((item) => !item.settled);
  }

  private async sendBatch(batch: LaneItem[]): Promise<void> {
    if (batch.length === 0) return;
    for (const item of batch) item.sent = true;
    const outcomes = await this.wire.transmit(batch.map(({ message }) => message));
    const gone: LaneItem[] = [];
    const unknown: LaneItem[] = [];
    const again = new Set<LaneItem>();
    let stored = 0;
    for (const [i, item] of batch.entries()) {
      const outcome = outcomes[i]!;
      if (outcome.ok) {
        if (outcome.value === null) {
          item.sent = false;
          gone.push(item);
        } else {
          this.stored(item, outcome.value);
          stored++;
        }
      } else if (wasNotSent(outcome.error)) {
        item.sent = false;
        again.add(item);
      } else if (isConnectionError(outcome.error)) {
        item.doubtful = item.message.delivery.kind !== 'now';
        unknown.push(item);
      } else if (classifyRedisError(outcome.error) === 'transient' && replyCode(outcome.error) !== 'OOM') {
        item.sent = false;
        again.add(item);
      } else {
        this.refuse(item, outcome.error);
      }
    }
    this.probing = again.size > 0;
    if (stored > 0) {
      this.backoff.reset();
      const { topic, partition } = this.deps;
      this.deps.events.emit('produced', { topic, partition, count: stored });
    }
    if (unknown.length > 0) for (const item of await this.verify(unknown)) again.add(item);
    const isHere = gone.length === 0 || (await this.restore(gone));
    for (const item of gone) again.add(item);
    // In the order of the batch, whatever it was that kept each of them out.
    const open = batch.filter((item) => again.has(item));
    if (!isHere) this.deps.moveOn([...open, ...this.queue.splice(0)].filter((item) => !item.settled));
    else if (open.length > 0) await this.requeue(open);
  }

  /**
   * Which of these are to be sent again: those that are not in the stream. What a script has stored it finds again by
   * its marker, and so needs no look, unless it was due and has been moved to the stream meanwhile.
   * Rejects those of which nothing can be said any more.
   */
  private async verify(unknown: readonly LaneItem[]): Promise<LaneItem[]> {
    const { kind } = unknown[0]!.message.delivery;
    if (kind === 'once') return [...unknown];
    const missing = new Set(unknown);
    // A sender may give one event id to several messages.
    const byEventId = new Map<string, LaneItem[]>();
    for (const item of unknown) {
      const { wireEventId } = item.message;
      byEventId.set(wireEventId, [...(byEventId.get(wireEventId) ?? []), item]);
    }
    let after: string | undefined;
    for (let pages = 0; pages < MAX_VERIFY_PAGES && missing.size > 0;) {
      const { connection, clock } = this.deps;
      const open = [...missing].filter((item) => !item.settled);
      if (open.length === 0) return [];
      if (connection.isDestroyed) break;
      if (!(await connection.whenReady(Math.max(1, this.earliest(open) - clock.monotonic())))) continue;
      try {
        after ??= await this.scanFrom();
        const entries = asEntries(await connection.send('XRANGE', this.stream, `(${after}`, '+', 'COUNT', VERIFY_PAGE));
        const found: [LaneItem, string][] = [];
        for (const { id, fields } of entries) {
          after = id;
          const at = fields?.findIndex((field, i) => i % 2 === 0 && field.toString('latin1') === 'eventId') ?? -1;
          const eventId = at < 0 ? '' : fields![at + 1]!.toString('latin1');
          const item = byEventId.get(eventId)?.shift();
          if (item === undefined) continue;
          found.push([item, id]);
        }
        const replicas = found.length > 0 && this.deps.waitReplicas > 0 ? await this.wire.askForReplicas() : null;
        for (const [item, id] of found) {
          missing.delete(item);
          this.stored(item, { id: kind === 'now' ? id : null, duplicate: false, replicas });
        }
        if (entries.length < VERIFY_PAGE) {
          if (kind === 'now') for (const item of missing) item.sent = false;
          return [...missing].filter((item) => !item.settled);
        }
        pages++;
      } catch {
        await this.wait(); // A fault of the connection, which is waited for above, or one that the deadline ends.
      }
    }
    for (const item of missing) this.expire(item);
    return [];
  }

  /**
   * Nothing of the batch can be before this: the last id known when it was sent, or the server's time then, whichever is
   * later. The second keeps the scan short for a lane that had been idle; it is not used when ids run ahead of the clock,
   * nor when the server's clock is not where it should be: it was set, or this process stood still with its machine.
   */
  private async scanFrom(): Promise<string> {
    const lastId = this.lastId ?? '0-0';
    const { connection, clock } = this.deps;
    const [seconds, micros] = asArray(await connection.send('TIME')).map(asNumber);
    const serverNow = seconds! * 1_000 + Math.floor(micros! / 1_000);
    const sentAt = Math.floor(serverNow - (clock.monotonic() - this.batchSentAt) - CLOCK_SLACK_MS);
    const lastAt = streamIdTime(lastId);
    if (this.lastStoredAt === undefined) return lastId;
    const expectedNow = lastAt + (clock.monotonic() - this.lastStoredAt);
    const isSteady = Math.abs(serverNow - expectedNow) < CLOCK_SLACK_MS;
    return isSteady && serverNow > lastAt && sentAt > lastAt ? `${sentAt}-0` : lastId;
  }

  private async readTail(): Promise<string> {
    const [last] = asEntries(await this.deps.connection.send('XREVRANGE', this.stream, '+', '-', 'COUNT', 1));
    return last?.id ?? '0-0';
  }

  /** False when the topic has no such partition any more. */
  private async restore(gone: readonly LaneItem[]): Promise<boolean> {
    this.lastId = undefined;
    this.lastStoredAt = undefined;
    try {
      return await this.deps.restoreTopic();
    } catch (error) {
      const isFull = replyCode(error) === 'OOM';
      if (classifyRedisError(error) === 'transient' && !isFull) return true;
      for (const item of gone) {
        const message = `topic ${this.deps.topic} does not exist: ${(error as Error).message}`;
        if (isFull) this.refuse(item, error);
        else this.reject(item, codeOfMissing(error), message, error);
      }
      return true;
    }
  }

  private async failed(error: unknown): Promise<void> {
    const batch = this.inFlight.filter((item) => !item.settled);
    if (classifyRedisError(error) === 'transient' || isConnectionError(error)) {
      if (wasNotSent(error)) for (const item of batch) item.sent = false;
      await this.requeue(batch.some((item) => item.sent) ? await this.verify(batch) : batch);
      return;
    }
    // The tail could not be read or the topic not be restored, for a reason that waiting does not mend.
    for (const item of batch.length > 0 ? batch : this.queue.splice(0)) this.refuse(item, error);
  }

  private async requeue(items: readonly LaneItem[]): Promise<void> {
    const open = items.filter((item) => !item.settled);
    if (this.closed) {
      for (const item of open) this.abandon(item);
      return;
    }
    this.queue.unshift(...open);
    this.inFlight = [];
    for (const item of open) this.watchDeadline(item.deadline);
    await this.wait();
  }

  private wait(): Promise<void> {
    return new Promise((resolve) => this.deps.clock.setTimer(resolve, this.backoff.next()));
  }

  private stored(item: LaneItem, { replicas, ...result }: WireResult): void {
    const { waitReplicas } = this.deps;
    if (replicas !== null && replicas < waitReplicas) {
      const message = `the message is stored, but only ${replicas} of ${waitReplicas} replicas have it`;
      this.reject(item, 'MQ_SEND_NOT_REPLICATED', message);
    }
    this.resolve(item, result);
  }

  private resolve(item: LaneItem, result: StoredResult): void {
    if (result.id !== null && !result.duplicate) {
      this.lastId = result.id;
      this.lastStoredAt = this.deps.clock.monotonic();
    }
    if (item.settled) return;
    item.settled = true;
    item.resolve(result);
  }

  private refuse(item: LaneItem, error: unknown): void {
    const reason = thrownText(error);
    this.reject(item, 'MQ_SEND_REFUSED', `Redis refused the message for topic ${this.deps.topic}: ${reason}`, error);
  }

  private reject(item: LaneItem, code: string, message: string, cause?: unknown): void {
    if (item.settled) return;
    item.settled = true;
    const { topic, partition } = this.deps;
    const retryable = !FINAL.has(code);
    item.reject(
      new MqSendError(code, message, item.message.eventId, { cause, retryable, context: { topic, partition } }),
    );
  }

  /** The producer is closed: nobody tries it again. */
  private abandon(item: LaneItem): void {
    if (item.sent || item.doubtful) this.expire(item);
    else this.reject(item, 'MQ_CLOSED', 'the producer was closed before the message was sent');
  }

  private expire(item: LaneItem): void {
    const { topic } = this.deps;
    if (item.sent || item.doubtful) {
      this.reject(
        item,
        'MQ_SEND_OUTCOME_UNKNOWN',
        `Redis did not answer in time; the message for topic ${topic} may be stored`,
      );
    } else {
      this.reject(item, 'MQ_SEND_TIMEOUT', `the message for topic ${topic} was not sent in time and is withdrawn`);
    }
  }

  private earliest(items: readonly LaneItem[]): number {
    return items.reduce((min, item) => Math.min(min, item.deadline), Infinity);
  }

  private watchDeadline(deadline: number): void {
    if (deadline >= this.timerAt) return;
    this.timer?.cancel();
    this.timerAt = deadline;
    this.timer = this.deps.clock.setTimer(() => this.sweep(), Math.max(1, deadline - this.deps.clock.monotonic()));
  }

  private sweep(): void {
    this.timer = undefined;
    this.timerAt = Infinity;
    const now = this.deps.clock.monotonic();
    for (const item of this.inFlight) if (item.deadline <= now) this.expire(item);
    for (const item of this.queue) if (item.deadline <= now) this.expire(item);
    this.queue = this.queue.filter((item) => !item.settled);
    const next = Math.min(this.earliest(this.queue), this.earliest(this.inFlight.filter((item) => !item.settled)));
    if (next < Infinity) this.watchDeadline(next);
  }
}

function codeOfMissing(error: unknown): string {
  return error instanceof MqError && error.code === 'MQ_TOPIC_DELETED' ? error.code : 'MQ_TOPIC_NOT_FOUND';
}

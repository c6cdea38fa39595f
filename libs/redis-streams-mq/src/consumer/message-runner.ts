import type { Clock, Timer } from '../core/clock.js';
import type { DeadLetter } from '../core/dead-letter.js';
import { MqHandlerTimeoutError, MqLeaseLostError } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import type { HandlerDefinition, HandlerOutcome, ReceivedMessage, StreamContext } from '../core/handler.js';
import { decodeMessage, MalformedEntryError, rawFieldsOf, type DecodedMessage } from '../core/message.js';
import type { Serializer } from '../core/serializer.js';
import { isStreamId, streamIdTime } from '../core/stream-id.js';
import type { Entry } from './entry.js';
import { HandlerCall } from './handler-call.js';
import type { Lease } from './lease.js';
import type { LetterDesk } from './letter-desk.js';

/** What became of one handler call, before the retry policy has its say. */
export type RunResult =
  | Exclude<HandlerOutcome, { type: 'dead' }>
  /** `called`: the handler was called, which costs an attempt. */
  | (Extract<HandlerOutcome, { type: 'dead' }> & { readonly called: boolean })
  /** Cut off by a shutdown or a lost lease: it stays pending and costs no attempt. */
  | { readonly type: 'aborted' };

export interface RunReport {
  readonly result: RunResult;
  /** For the dead letter's metadata; `null` when the entry could not be decoded. */
  readonly message: DecodedMessage | null;
  /** Resolves when the user's code has really ended, which after a timeout may be later than the report. */
  readonly ended: Promise<void> | null;
}

/** An entry that is to be handled. */
interface Opened {
  readonly message: DecodedMessage;
  readonly payload: unknown;
  readonly publishedAt: number;
}

export interface MessageRunnerDeps {
  readonly handler: HandlerDefinition;
  readonly lease: Lease;
  readonly serializer: Serializer;
  readonly clock: Clock;
  readonly events: MqEvents;
  /** The server's clock as far as this process knows it, in milliseconds. */
  readonly serverNow: () => number;
  /** Of a handler of dead letters. */
  readonly desk?: LetterDesk | undefined;
}

class Stopped extends Error {}

/** Aborts on shutdown, and so is told from a lost lease and from a timeout. */
const SHUTDOWN = new Stopped('the process is shutting down');

/** Decodes entries and calls the handler for each, with its time limit and its signal. */
export class MessageRunner {
  private readonly calls = new Set<HandlerCall>();
  private timer: Timer | undefined;
  private timerAt = Infinity;

  constructor(private readonly deps: MessageRunnerDeps) {
    deps.lease.controller.signal.addEventListener('abort', () => this.abort(new MqLeaseLostError(this.place)), {
      once: true,
    });
  }

  /** Tells the running handlers, through their signals, that nobody will wait for them. */
  abortForShutdown(): void {
    this.abort(SHUTDOWN);
  }

  async run(entry: Entry): Promise<RunReport> {
    const opened = this.open(entry);
    return 'result' in opened ? opened : this.call(entry, opened.message, opened.payload, opened.publishedAt);
  }

  /** As `run`, for several entries that are handled by one call; one report for each, in their order. */
  async runBatch(entries: readonly Entry[]): Promise<readonly RunReport[]> {
    const opened = entries.map((entry) => this.open(entry));
    const items = opened.flatMap((each, i) => ('result' in each ? [] : [{ ...each, entry: entries[i]! }]));
    const reports = items.length === 0 ? [] : await this.callBatch(items);
    const ended = reports[0]?.ended ?? null;
    let next = 0;
    return opened.map((each) => ('result' in each ? { ...each, ended } : reports[next++]!));
  }

  /** What there is to be handled, or what becomes of an entry for which the handler is not called. */
  private open(entry: Entry): Opened | RunReport {
    let message: DecodedMessage;
    let payload: unknown;
    try {
      message = decodeMessage(entry.fields!);
      payload = this.deserialize(message.payload);
    } catch (error) {
      return { result: { type: 'dead', reason: 'malformed', error, called: false }, message: null, ended: null };
    }
    const publishedAt = streamIdTime(entry.origin);
    const ttlMs = Math.min(message.ttlMs ?? Infinity, this.deps.handler.options.ttlMs || Infinity);
    if (this.deps.serverNow() > publishedAt + ttlMs) {
      return { result: { type: 'dead', reason: 'expired', called: false }, message, ended: null };
    }
    return { message, payload, publishedAt };
  }

  /** As `run`, for an entry that is a dead letter: whatever it died of, it is shown to its handler. */
  async runLetter(entry: Entry, letter: DeadLetter): Promise<RunReport> {
    let message: DecodedMessage;
    let payload: unknown;
    try {
      message = decodeMessage(letter.fields);
      payload = this.deserialize(message.payload);
    } catch {
      const { payload: bytes, key, eventId, headers } = letter;
      message = { payload: bytes ?? Buffer.alloc(0), key, eventId: eventId ?? '', headers };
      payload = null;
    }
    const { originalMessageId, failedAt } = letter;
    const publishedAt = isStreamId(originalMessageId) ? streamIdTime(originalMessageId) : failedAt;
    return this.call(entry, message, payload, publishedAt, letter);
  }

  private deserialize(bytes: Buffer): unknown {
    try {
      return this.deps.serializer.deserialize(bytes);
    } catch (error) {
      throw new MalformedEntryError('the payload cannot be decoded', error);
    }
  }

  private async call(
    entry: Entry,
    message: DecodedMessage,
    payload: unknown,
    publishedAt: number,
    letter?: DeadLetter,
  ): Promise<RunReport> {
    if (!this.isTrusted) return { result: { type: 'aborted' }, message, ended: null };
    const call = this.begin();
    const own = this.contextOf(entry, message, publishedAt, call, letter);
    const context = letter === undefined ? own : this.deps.desk!.contextOf(own, letter);
    const running = this.invoke({ payload, payloadBytes: message.payload, context });
    const timedOut = await this.timedOut(call, running);
    const result = this.resultOf(call, timedOut === null ? await running : timedOut, publishedAt);
    return { result, message, ended: timedOut === null ? null : running.then(() => undefined) };
  }

  private async callBatch(items: readonly (Opened & { readonly entry: Entry })[]): Promise<readonly RunReport[]> {
    if (!this.isTrusted) return items.map(({ message }) => ({ result: { type: 'aborted' }, message, ended: null }));
    const call = this.begin();
    const received = items.map(({ entry, message, payload, publishedAt }) => {
      const context = this.contextOf(entry, message, publishedAt, call, undefined);
      return { payload, payloadBytes: message.payload, context };
    });
    const running = this.invokeBatch(received);
    const timedOut = await this.timedOut(call, running);
    const outcomes = timedOut === null ? await running : items.map(() => timedOut);
    const ended = timedOut === null ? null : running.then(() => undefined);
    return items.map(({ message, publishedAt }, i) => ({
      result: this.resultOf(call, outcomes[i]!, publishedAt),
      message,
      ended,
    }));
  }

  /**
   * The last look: a process may have been frozen since the one before. A lease past its time is lost here, since what is
   * not handled now would stay, should it be renewed after all, without anybody who begins it.
   */
  private get isTrusted(): boolean {
    const { lease } = this.deps;
    if (!lease.isTrusted) lease.lose('expired');
    return !lease.isEnded;
  }

  private begin(): HandlerCall {
    const { clock, handler } = this.deps;
    const call = new HandlerCall(clock.monotonic(), handler.options.handlerTimeoutMs);
    this.calls.add(call);
    return call;
  }

  /** Resolves when the call has ended, with `null`, or when its time is over, with what that means. */
  private async timedOut(call: HandlerCall, running: Promise<unknown>): Promise<HandlerOutcome | null> {
    const { handlerTimeoutMs } = this.deps.handler.options;
    if (handlerTimeoutMs === 0) {
      await running;
    } else {
      const overrun = new Promise<void>((resolve) => (call.onTimeout = resolve));
      this.watch(call.deadline);
      await Promise.race([running, overrun]);
    }
    this.calls.delete(call);
    return call.timeoutError === undefined ? null : { type: 'retry', error: call.timeoutError };
  }

  private resultOf(call: HandlerCall, outcome: HandlerOutcome, publishedAt: number): RunResult {
    const { clock, events, lease, serverNow } = this.deps;
    let result: RunResult = outcome.type === 'dead' ? { ...outcome, called: true } : outcome;
    if (result.type === 'retry' && (call.abortReason === SHUTDOWN || lease.isEnded)) result = { type: 'aborted' };
    if (events.has('handled')) {
      events.emit('handled', {
        ...this.place,
        outcome: result.type,
        durationMs: clock.monotonic() - call.startedAt,
        endToEndMs: Math.max(0, serverNow() - publishedAt),
      });
    }
    return result;
  }

  private async invoke(received: ReceivedMessage): Promise<HandlerOutcome> {
    try {
      return await this.deps.handler.invoke(received);
    } catch (error) {
      return { type: 'retry', error };
    }
  }

  private async invokeBatch(received: readonly ReceivedMessage[]): Promise<readonly HandlerOutcome[]> {
    const { invokeBatch, name } = this.deps.handler;
    try {
      const outcomes = await invokeBatch!(received);
      if (outcomes.length === received.length) return outcomes;
      throw new Error(`${name} gave ${outcomes.length} outcomes for ${received.length} messages`);
    } catch (error) {
      return received.map(() => ({ type: 'retry', error }));
    }
  }

  private contextOf(
    entry: Entry,
    message: DecodedMessage,
    publishedAt: number,
    call: HandlerCall,
    letter: DeadLetter | undefined,
  ): StreamContext {
    const { lease, handler, clock } = this.deps;
    const fields = entry.fields!;
    return {
      topic: handler.topic,
      partition: lease.terms.partition,
      group: handler.group,
      id: letter?.originalMessageId ?? entry.origin,
      key: message.key,
      headers: message.headers,
      eventId: message.eventId,
      attempt: entry.attemptsMade + 1,
      epoch: lease.terms.epoch,
      timestamp: message.timestamp ?? publishedAt,
      publishedAt,
      get signal() {
        return call.signal;
      },
      get rawFields() {
        return rawFieldsOf(letter?.fields ?? fields);
      },
      heartbeat: async () => call.heartbeat(clock.monotonic(), lease.isTrusted, this.place),
    };
  }

  private abort(reason: Error): void {
    for (const call of this.calls) call.abort(reason);
  }

  /** One timer for all calls: it fires for the earliest deadline, and looks again when that was put off. */
  private watch(deadline: number): void {
    if (deadline >= this.timerAt) return;
    const { handlerTimeoutMs } = this.deps.handler.options;
    this.timer?.cancel();
    this.timerAt = deadline;
    this.timer = this.deps.clock.setTimer(
      () => {
        this.timerAt = Infinity;
        const now = this.deps.clock.monotonic();
        let next = Infinity;
        for (const call of this.calls) {
          if (call.deadline <= now) call.timeOut(new MqHandlerTimeoutError(handlerTimeoutMs, this.place));
          else next = Math.min(next, call.deadline);
        }
        if (next !== Infinity) this.watch(next);
      },
      Math.max(1, deadline - this.deps.clock.monotonic()),
    );
  }

  private get place(): { topic: string; partition: number; group: string } {
    const { topic, partition, group } = this.deps.lease.terms;
    return { topic, partition, group };
  }
}

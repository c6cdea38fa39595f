import type { Clock, Timer } from '../core/clock.js';
import type { DeadLetter } from '../core/dead-letter.js';
import { MqHandlerTimeoutError, MqLeaseLostError } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import type { HandlerDefinition, HandlerOutcome, ReceivedMessage } from '../core/handler.js';
import { decodeMessage, MalformedEntryError, type DecodedMessage } from '../core/message.js';
import type { Serializer } from '../core/serializer.js';
import { isStreamId, streamIdTime } from '../core/stream-id.js';
import type { Entry } from './entry.js';
import { doNothing, HandlerCall } from './handler-call.js';
import type { Lease } from './lease.js';
import type { LetterDesk } from './letter-desk.js';
import { MessageContext } from './message-context.js';

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
  /** How long the handler took until then, or until its time was over; 0 when it was not called. */
  readonly tookMs: number;
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
  /** One as a rule, and a set allocates with every few that come and go. */
  private readonly calls: HandlerCall[] = [];
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

  run(entry: Entry): RunReport | Promise<RunReport> {
    const opened = this.open(entry);
    return 'result' in opened ? opened : this.call(entry, opened);
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
      return {
        result: { type: 'dead', reason: 'malformed', error, called: false },
        message: null,
        ended: null,
        tookMs: 0,
      };
    }
    const publishedAt = streamIdTime(entry.origin);
    const ttlMs = Math.min(message.ttlMs ?? Infinity, this.deps.handler.options.ttlMs || Infinity);
    if (ttlMs !== Infinity && this.deps.serverNow() > publishedAt + ttlMs) {
      return { result: { type: 'dead', reason: 'expired', called: false }, message, ended: null, tookMs: 0 };
    }
    return { message, payload, publishedAt };
  }

  /** As `run`, for an entry that is a dead letter: whatever it died of, it is shown to its handler. */
  runLetter(entry: Entry, letter: DeadLetter): RunReport | Promise<RunReport> {
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
    return this.call(entry, { message, payload, publishedAt }, letter);
  }

  private deserialize(bytes: Buffer): unknown {
    try {
      return this.deps.serializer.deserialize(bytes);
    } catch (error) {
      throw new MalformedEntryError('the payload cannot be decoded', error);
    }
  }

  private call(entry: Entry, opened: Opened, letter?: DeadLetter): RunReport | Promise<RunReport> {
    const { message, payload, publishedAt } = opened;
    const call = this.begin();
    if (call === null) return { result: { type: 'aborted' }, message, ended: null, tookMs: 0 };
    const own = this.contextOf(entry, opened, call, letter);
    const context = letter === undefined ? own : this.deps.desk!.extend(own, letter);
    const running = this.invoke({ payload, payloadBytes: message.payload, context });
    return this.whenOver(call, running, failed, (outcome, tookMs) => {
      const result = this.resultOf(call, outcome ?? call.timedOut, publishedAt, tookMs);
      return { result, message, ended: outcome === null ? endOf(running) : null, tookMs };
    });
  }

  private callBatch(
    items: readonly (Opened & { readonly entry: Entry })[],
  ): readonly RunReport[] | Promise<readonly RunReport[]> {
    const call = this.begin();
    if (call === null)
      return items.map(({ message }) => ({ result: { type: 'aborted' }, message, ended: null, tookMs: 0 }));
    const received = items.map((item): ReceivedMessage => {
      const { payload, message } = item;
      return { payload, payloadBytes: message.payload, context: this.contextOf(item.entry, item, call) };
    });
    const running = this.invokeBatch(received);
    const allFailed = (error: unknown): readonly HandlerOutcome[] => items.map(() => failed(error));
    return this.whenOver(call, running, allFailed, (outcomes, tookMs) => {
      const ended = outcomes === null ? endOf(running) : null;
      return items.map(({ message, publishedAt }, i) => {
        const result = this.resultOf(call, outcomes?.[i] ?? call.timedOut, publishedAt, tookMs);
        return { result, message, ended, tookMs };
      });
    });
  }

  /**
   * `null` when the lease is over. The last look: a process may have been frozen since the one before. A lease past its
   * time is lost here, since what is not handled now would stay, should it be renewed after all, without anybody who
   * begins it.
   */
  private begin(): HandlerCall | null {
    const { clock, handler, lease } = this.deps;
    const now = clock.monotonic();
    if (!lease.isTrustedAt(now)) {
      lease.lose('expired');
      return null;
    }
    const call = new HandlerCall(now, handler.options.handlerTimeoutMs, lease, clock);
    this.calls.push(call);
    if (call.deadline !== Infinity) this.watch(call.deadline);
    return call;
  }

  /**
   * Resolves with the report about what the code gave, or about `null` when its time was over before that. One promise and
   * no `await`: this is done for each message.
   */
  private whenOver<T, R>(
    call: HandlerCall,
    running: Promise<T>,
    onError: (error: unknown) => T,
    report: (outcome: T | null, tookMs: number) => R,
  ): Promise<R> {
    return new Promise((resolve) => {
      const over = (outcome: T | null): void => {
        if (this.forget(call)) resolve(report(outcome, this.deps.clock.monotonic() - call.startedAt));
      };
      running.then(over, (error: unknown) => over(onError(error)));
      call.onTimeout = over;
    });
  }

  /** False when it is over already. */
  private forget(call: HandlerCall): boolean {
    const { calls } = this;
    const at = calls.indexOf(call);
    if (at < 0) return false;
    if (at === calls.length - 1) calls.pop();
    else calls.splice(at, 1);
    // It holds on to the message.
    call.onTimeout = doNothing;
    return true;
  }

  private resultOf(call: HandlerCall, outcome: HandlerOutcome, publishedAt: number, durationMs: number): RunResult {
    const { events, lease, serverNow } = this.deps;
    let result: RunResult = outcome.type === 'dead' ? { ...outcome, called: true } : outcome;
    if (result.type === 'retry' && (call.abortReason === SHUTDOWN || lease.isEnded)) result = { type: 'aborted' };
    if (events.has('handled')) {
      const { topic, partition, group } = lease.terms;
      const endToEndMs = Math.max(0, serverNow() - publishedAt);
      events.emit('handled', { topic, partition, group, outcome: result.type, durationMs, endToEndMs });
    }
    return result;
  }

  private invoke(received: ReceivedMessage): Promise<HandlerOutcome> {
    try {
      return this.deps.handler.invoke(received);
    } catch (error) {
      return Promise.resolve(failed(error));
    }
  }

  private async invokeBatch(received: readonly ReceivedMessage[]): Promise<readonly HandlerOutcome[]> {
    const { invokeBatch, name } = this.deps.handler;
    const outcomes = await invokeBatch!(received);
    if (outcomes.length === received.length) return outcomes;
    throw new Error(`${name} gave ${outcomes.length} outcomes for ${received.length} messages`);
  }

  private contextOf(
    entry: Entry,
    { message, publishedAt }: Opened,
    call: HandlerCall,
    letter?: DeadLetter,
  ): MessageContext {
    return new MessageContext({
      terms: this.deps.lease.terms,
      message,
      id: letter?.originalMessageId ?? entry.origin,
      attempt: entry.attemptsMade + 1,
      publishedAt,
      fields: letter?.fields ?? entry.fields!,
      call,
    });
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

function failed(error: unknown): HandlerOutcome {
  return { type: 'retry', error };
}

function endOf(running: Promise<unknown>): Promise<void> {
  return running.then(doNothing, doNothing);
}

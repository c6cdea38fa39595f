import { within } from '../core/clock.js';
import type { HandlerDefinition } from '../core/handler.js';
import type { Serializer } from '../core/serializer.js';
import { EntryQueue } from './entry-queue.js';
import { laneRule } from './lane-rule.js';
import type { Lease } from './lease.js';
import { Ledger } from './ledger.js';
import { MessageRunner } from './message-runner.js';
import type { RawEntries } from './ledger-check.js';
import { PartitionIntake, type PartitionIntakeDeps } from './partition-intake.js';
import { PartitionWorker, type PartitionWorkerDeps } from './partition-worker.js';
import { Recall } from './recall.js';
import { Settler } from './settler.js';

export interface PartitionConsumerDeps
  extends
    Omit<PartitionIntakeDeps, 'queue' | 'ledger' | 'settler' | 'batch'>,
    Omit<PartitionWorkerDeps, 'queue' | 'settler' | 'runner'> {
  readonly handler: HandlerDefinition;
  readonly serializer: Serializer;
  /** The server's clock as far as this process knows it, in milliseconds. */
  readonly serverNow: () => number;
  /** The group's bucket has an item due in that many milliseconds. */
  readonly onRetryDue: (inMs: number) => void;
}

/** Consumes one owned partition for one group, from the lease's beginning to its end: intake, handling, settling. */
export class PartitionConsumer {
  private readonly queue: EntryQueue;
  private readonly ledger: Ledger;
  private readonly settler: Settler;
  private readonly recall: Recall;
  private readonly runner: MessageRunner;
  private readonly intake: PartitionIntake;
  private readonly worker: PartitionWorker;

  constructor(private readonly deps: PartitionConsumerDeps) {
    const { options } = deps.handler;
    const batch = options.batchCount;
    this.ledger = new Ledger(deps.inFlight, () => this.queue.lookForRoom());
    this.queue = new EntryQueue({
      ...deps,
      ledger: this.ledger,
      // A batch has to fit into it.
      lowMark: Math.max(batch, options.batch?.size ?? 0),
      onLow: () => this.intake.roomCameFree(),
      laneOf: laneRule(options),
      maxShelved: options.maxHeldPerPartition,
      onFull: () => this.warnOfHeld(options.maxHeldPerPartition),
      recall: (entries) => void this.recall.fetch(entries),
    });
    this.settler = new Settler({
      ...deps,
      ledger: this.ledger,
      onGroupLost: () => this.intake.groupLost(),
      onUnanswered: () => this.intake.requestCheck(),
    });
    this.recall = new Recall({ ...deps, ledger: this.ledger, settler: this.settler, queue: this.queue });
    this.runner = new MessageRunner(deps);
    const { queue, ledger, settler, runner } = this;
    this.intake = new PartitionIntake({
      ...deps,
      queue,
      ledger,
      settler,
      batch,
      pageSize: Math.max(batch, deps.pageSize),
    });
    this.worker = new PartitionWorker({ ...deps, queue, settler, runner });
    deps.lease.controller.signal.addEventListener('abort', () => this.end(), { once: true });
  }

  get lease(): Lease {
    return this.deps.lease;
  }

  /** Why this partition cannot be read at present, or `undefined`. */
  get failing(): string | undefined {
    return this.intake.failing ?? (this.queue.isFull ? 'MAX_HELD' : undefined);
  }

  /** For how long a handler has overrun its time without ending, in milliseconds, or `null`. */
  get stuckForMs(): number | null {
    return this.worker.stuckForMs;
  }

  /** For how long the oldest handler call that has not ended has been running, in milliseconds, or `null`. */
  get busyForMs(): number | null {
    return this.worker.busyForMs;
  }

  /** Whether a handler call runs, or is being begun. */
  get isBusy(): boolean {
    return this.worker.isBusy;
  }

  get room(): number {
    return this.intake.room;
  }

  start(): void {
    this.intake.start();
    this.worker.start();
  }

  accept(entries: RawEntries, asked: number): Promise<void> {
    return this.intake.accept(entries, asked);
  }

  readFailed(error: unknown): void {
    this.intake.readFailed(error);
  }

  requestCheck(): void {
    this.intake.requestCheck();
  }

  pendingSeen(stream: number, retry: number): void {
    this.intake.pendingSeen(stream, retry);
  }

  /**
   * Ends in order: reads no more, drops what has not started, waits for the running handlers and settles. After
   * `timeoutMs` they are told to stop and get `graceMs` more. Resolves true when nothing of this partition runs
   * and everything was sent to be settled, so that the lease may be released.
   */
  async drain(timeoutMs: number, graceMs: number): Promise<boolean> {
    const { clock, lease, outsideRead, onReadableChanged } = this.deps;
    this.intake.stop();
    this.worker.stop();
    // Not when the running handlers have ended: they may not do so in time.
    this.settler.flush();
    this.queue.clear();
    onReadableChanged();
    const finished = (async (): Promise<void> => {
      await outsideRead();
      await this.finished();
    })();
    let inOrder = await within(clock, finished, timeoutMs);
    if (!inOrder) {
      this.runner.abortForShutdown();
      inOrder = await within(clock, finished, graceMs);
    }
    // A handler that did not end may still settle; everything else is left to the next owner.
    const forget = (): void => this.ledger.clear();
    if (inOrder) {
      this.end();
    } else {
      forget();
      finished.then(forget, forget);
    }
    return inOrder && !lease.isEnded;
  }

  /** Resolves when no code of the user runs for this ownership any more, and its outcomes were sent. */
  async finished(): Promise<void> {
    await Promise.all([this.intake.finished(), this.worker.finished()]);
    if (!this.deps.lease.isEnded) await this.settler.settled();
  }

  private warnOfHeld(maxHeldPerPartition: number): void {
    const { events, lease } = this.deps;
    const { topic, partition, group } = lease.terms;
    const message = 'a partition is not read: as many messages as maxHeldPerPartition allows wait for failing ones';
    events.emit('warning', { message, fields: { topic, partition, group, maxHeldPerPartition } });
  }

  private end(): void {
    this.intake.stop();
    this.worker.stop();
    this.worker.takeBackMarks();
    this.queue.clear();
    this.settler.discard();
    this.ledger.clear();
    this.deps.onReadableChanged();
  }
}

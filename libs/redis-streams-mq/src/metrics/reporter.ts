import { pause, within, type Clock } from '../core/clock.js';
import type { MqEvents } from '../core/events.js';
import type { Connection } from '../redis/connection.js';
import { classifyRedisError } from '../redis/redis-errors.js';
import { call } from '../redis/script.js';
import { report, type ReportReply } from '../redis/scripts/report.script.js';
import type { Readings } from './cluster-sample.js';
import type { ClusterSample } from './cluster-sampler.js';

export interface ReporterDeps {
  /** Carries the lease; never one that blocks. */
  readonly connection: Connection;
  /** Key of the lease. */
  readonly reporterKey: string;
  /** Unique in the whole fleet. */
  readonly token: string;
  readonly clock: Clock;
  readonly events: MqEvents;
  readonly random: () => number;
  readonly leaseTtlMs: number;
  readonly renewIntervalMs: number;
  /** From the beginning of one sample to that of the next. */
  readonly intervalMs: number;
  readonly sample: (goesOn: () => boolean, signal: AbortSignal) => Promise<ClusterSample | null>;
}

interface Taken extends ClusterSample {
  readonly at: number;
  readonly durationMs: number;
}

/** A user without the rights is asked again only after this time: another instance may have them. */
const BARRED_MS = 600_000;
const STALE_INTERVALS = 4;
const STALE_MS = 60_000;
const RELEASE_TIMEOUT_MS = 500;

/**
 * Whether this instance is the one that exports what concerns all, and its last sample.
 *
 *     waiting --(lease taken)--> reporting --(trust ends, lease taken by another, not allowed, stopped)--> waiting
 *
 * Trust in the lease is local time counted from when the request that proved it was sent, and ends before Redis' key does:
 * two instances never report at once, also when Redis hangs.
 */
export class Reporter {
  private readonly stopping = new AbortController();
  private trustedUntil = -Infinity;
  /** The lease was asked for and has not been given up since, whether or not it is trusted. */
  private mayHold = false;
  private barredUntil = -Infinity;
  private taken: Taken | undefined;
  private loops: Promise<unknown> | undefined;
  private wakeSampler: (() => void) | undefined;
  private wakeLease: (() => void) | undefined;
  private hasWarned = false;
  private failingSince: number | undefined;

  constructor(private readonly deps: ReporterDeps) {}

  get isReporting(): boolean {
    const now = this.deps.clock.monotonic();
    return !this.stopping.signal.aborted && now < this.trustedUntil && now >= this.barredUntil;
  }

  /** The last sample as long as it may be shown, and how old it is; local state, whatever Redis does. */
  get readings(): Readings {
    const { taken } = this;
    if (taken === undefined || !this.isReporting) return {};
    const age = this.deps.clock.monotonic() - taken.at;
    const about: Readings = {
      sampleAge: [{ labels: [], value: age }],
      sampleDuration: [{ labels: [], value: taken.durationMs }],
      sampleLeftOut: [{ labels: [], value: taken.leftOut }],
    };
    const isStale = age > taken.durationMs + Math.max(STALE_MS, STALE_INTERVALS * this.deps.intervalMs);
    return isStale ? about : { ...taken.readings, ...about };
  }

  start(): void {
    if (this.stopping.signal.aborted) return;
    this.loops ??= Promise.all([this.keepLease(), this.keepSampling()]);
  }

  /** Shows nothing more at once, and gives the lease up so that another need not wait for its end. */
  async stop(): Promise<void> {
    if (this.stopping.signal.aborted) return;
    this.stopping.abort();
    this.taken = undefined;
    if (this.loops === undefined) return;
    this.wakeSampler?.();
    this.wakeLease?.();
    if (this.mayHold) await this.giveUp();
    await within(this.deps.clock, this.loops, RELEASE_TIMEOUT_MS);
  }

  private async giveUp(): Promise<void> {
    this.trustedUntil = -Infinity;
    const givenUp = this.ask(0).then(() => (this.mayHold = false));
    await within(this.deps.clock, givenUp, RELEASE_TIMEOUT_MS);
  }

  private ask(ttl: number): Promise<ReportReply> {
    const { connection, reporterKey, token } = this.deps;
    return connection.run(call(report, { reporter: reporterKey }, { token, ttl }));
  }

  private async keepLease(): Promise<void> {
    const { clock, connection, renewIntervalMs } = this.deps;
    const { signal } = this.stopping;
    while (!signal.aborted) {
      let waitMs = renewIntervalMs;
      try {
        if (!(await connection.whenReady(renewIntervalMs, signal))) continue;
        const barredMs = this.barredUntil - clock.monotonic();
        waitMs = barredMs > 0 ? barredMs : await this.takeTurn();
      } catch (error) {
        this.failed(error, waitMs);
      }
      const woken = new AbortController();
      this.wakeLease = () => woken.abort();
      if (!signal.aborted) await pause(clock, waitMs, woken.signal);
      this.wakeLease = undefined;
    }
  }

  /** Returns when to ask again. */
  private async takeTurn(): Promise<number> {
    const { clock, connection, leaseTtlMs, renewIntervalMs, random } = this.deps;
    const sentAt = clock.monotonic();
    this.mayHold = true;
    const { isOurs, pttl } = await connection.withTimeout(this.ask(leaseTtlMs), leaseTtlMs);
    if (isOurs) {
      this.trustedUntil = sentAt + leaseTtlMs - Math.min(1_000, leaseTtlMs / 10);
      this.wakeSampler?.();
      return renewIntervalMs;
    }
    this.mayHold = false;
    this.trustedUntil = -Infinity;
    this.taken = undefined;
    // When it ends, or, as it may be given up before, after some turns.
    return Math.min(pttl, 2 * renewIntervalMs) + random() * renewIntervalMs * 0.5;
  }

  private async keepSampling(): Promise<void> {
    const { clock, intervalMs } = this.deps;
    const { signal } = this.stopping;
    while (!signal.aborted) {
      if (!this.isReporting) {
        await new Promise<void>((resolve) => (this.wakeSampler = resolve));
        this.wakeSampler = undefined;
        continue;
      }
      const startedAt = clock.monotonic();
      try {
        const sample = await this.deps.sample(() => this.isReporting, signal);
        const at = clock.monotonic();
        if (sample !== null && this.isReporting) this.taken = { ...sample, at: startedAt, durationMs: at - startedAt };
        if (sample !== null) this.recovered();
      } catch (error) {
        this.failed(error, intervalMs);
      }
      await pause(clock, Math.max(intervalMs / 2, intervalMs - (clock.monotonic() - startedAt)), signal);
    }
  }

  private recovered(): void {
    const { events, clock } = this.deps;
    if (this.failingSince === undefined) return;
    events.emit('recovered', { component: 'reporter', afterMs: clock.monotonic() - this.failingSince });
    this.failingSince = undefined;
  }

  private failed(error: unknown, retryInMs: number): void {
    if (this.stopping.signal.aborted) return;
    const { events, clock } = this.deps;
    const kind = classifyRedisError(error);
    if (kind !== 'configuration') {
      this.failingSince ??= clock.monotonic();
      events.emit('fault', { component: 'reporter', class: kind, error, retryInMs });
      return;
    }
    const isOurs = this.isReporting;
    this.barredUntil = clock.monotonic() + BARRED_MS;
    this.taken = undefined;
    if (isOurs) void this.giveUp();
    if (this.hasWarned) return;
    this.hasWarned = true;
    events.emit('warning', {
      message:
        'this user of Redis may not read what the metrics of the whole queue need; another instance has to export them',
      fields: { error },
    });
  }
}

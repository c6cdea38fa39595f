import type { Clock, Timer } from '../core/clock.js';
import type { OwnedLagLook } from './owned-lag.js';

/** What one look at Redis found. `reason` is a short word such as `NOREPLICAS`; it is shown to whoever may see probes. */
export interface HealthProbe {
  readonly reachable: boolean;
  readonly writable: boolean;
  readonly reason?: string;
  /** Number of topics in the registry. */
  readonly topics: number;
}

/** A background loop as seen from outside. */
export interface LoopState {
  readonly name: string;
  readonly alive: boolean;
  readonly lastTickAgoMs: number;
  /** Longer without a tick than this means that the loop hangs. */
  readonly maxQuietMs: number;
  /** Why its ticks fail at present; a loop that fails and goes on is alive. */
  readonly failing?: string;
}

export interface ConsumptionState {
  /** False for an instance that only produces, and before the application is ready. */
  readonly started: boolean;
  /** Partitions whose lease this instance holds. */
  readonly owned: number;
  /** Partitions of the subscribed topics that nobody has owned for longer than a rebalance takes. */
  readonly unowned?: readonly string[];
  readonly stuckHandlers: readonly { readonly partition: string; readonly forMs: number }[];
  readonly failingPartitions: readonly { readonly partition: string; readonly error: string }[];
}

/** One entry, under the name of the instance; the shape that Terminus takes as it is, in all its versions. */
export type MqHealthResult = Record<string, { status: 'up' | 'down'; [field: string]: unknown }>;

export interface MqHealthDeps {
  /** Name of the module instance; `default` has the key `redisStreamsMq`, another `redisStreamsMq:<name>`. */
  readonly name: string;
  readonly clock: Clock;
  /** How long readiness waits for Redis. @default 2000 */
  readonly timeoutMs?: number;
  /** Asks Redis whether it answers and accepts writes. May reject or never settle. */
  readonly probe: () => Promise<HealthProbe>;
  /** What is wrong with the server's settings and will hurt later; shown, and no reason to be down. */
  readonly concerns?: () => readonly string[];
  readonly loops: () => readonly LoopState[];
  readonly consumption: () => ConsumptionState;
  /** Lag of the partitions owned; asked only with a limit. */
  readonly lag?: () => Promise<OwnedLagLook>;
  /** Unsettled messages of a partition owned beyond which this instance is not ready; 0: no limit. */
  readonly maxLag?: number;
  /** The same for the age of the oldest, in milliseconds. */
  readonly maxLagAgeMs?: number;
}

/** A partition or loop beyond this many is counted, not named: a probe's body stays small. */
const MAX_LISTED = 10;
const MAX_TEXT = 200;

/**
 * Says whether this instance can do its work (readiness) and whether a restart would help it (liveness). Neither ever
 * throws, and readiness answers within `timeoutMs` whatever Redis does.
 *
 * ```ts
 * health.check([() => mqHealth.readiness()]);
 * ```
 */
export class MqHealth {
  private readonly key: string;
  private readonly timeoutMs: number;
  /** The probe under way; probes of many callers at once must not queue up on a Redis that hangs. */
  private running: Promise<HealthProbe> | undefined;
  private lagRunning: Promise<OwnedLagLook> | undefined;

  constructor(private readonly deps: MqHealthDeps) {
    this.key = deps.name === 'default' ? 'redisStreamsMq' : `redisStreamsMq:${deps.name}`;
    this.timeoutMs = deps.timeoutMs ?? 2_000;
  }

  /** Up when Redis takes writes, every loop works and every owned partition moves. */
  async readiness(): Promise<MqHealthResult> {
    const [redis, lag] = await Promise.all([this.sharedProbe(), this.sharedLag()]);
    return this.result(() => {
      const loops = this.deps.loops();
      const consumption = this.deps.consumption();
      const concerns = this.deps.concerns?.() ?? [];
      return {
        reasons: [
          ...redisReasons(redis),
          ...quietReasons(loops),
          ...named(
            'loops are failing',
            loops.filter((loop) => loop.failing !== undefined).map((loop) => `${loop.name} (${short(loop.failing)})`),
          ),
          ...named('partitions have no owner', consumption.unowned ?? []),
          ...named(
            'handlers are stuck',
            consumption.stuckHandlers.map((handler) => handler.partition),
          ),
          ...named(
            'partitions cannot be read',
            consumption.failingPartitions.map((failing) => failing.partition),
          ),
          ...(lag === null ? [] : this.lagReasons(lag, redis.reachable)),
        ],
        fields: {
          redis: {
            reachable: redis.reachable,
            writable: redis.writable,
            ...(concerns.length > 0 && { warnings: concerns }),
          },
          topics: redis.reachable ? redis.topics : null,
          loops: countLoops(loops),
          ...(lag !== null && { lag: lagFields(lag) }),
          consuming: consumption.started,
          partitionsOwned: consumption.owned,
          stuckHandlers: consumption.stuckHandlers.slice(0, MAX_LISTED),
          failingPartitions: consumption.failingPartitions
            .slice(0, MAX_LISTED)
            .map(({ partition, error }) => ({ partition, error: short(error) })),
        },
      };
    });
  }

  /** Up while the loops tick, also when all they meet is errors: a restart brings no Redis back. */
  liveness(): Promise<MqHealthResult> {
    return Promise.resolve(
      this.result(() => {
        const loops = this.deps.loops();
        return { reasons: quietReasons(loops), fields: { loops: countLoops(loops) } };
      }),
    );
  }

  private result(look: () => { reasons: readonly string[]; fields: Record<string, unknown> }): MqHealthResult {
    try {
      const { reasons, fields } = look();
      return { [this.key]: { status: reasons.length === 0 ? 'up' : 'down', ...fields, reasons } };
    } catch (error) {
      return { [this.key]: { status: 'down', reasons: [`the state cannot be read (${codeOf(error)})`] } };
    }
  }

  private sharedProbe(): Promise<HealthProbe> {
    this.running ??= this.timed(this.deps.probe, unreachable).finally(() => (this.running = undefined));
    return this.running;
  }

  /** `null` without a limit: Redis is then not asked. */
  private sharedLag(): Promise<OwnedLagLook | null> {
    const { lag, maxLag = 0, maxLagAgeMs = 0 } = this.deps;
    if (lag === undefined || (maxLag === 0 && maxLagAgeMs === 0)) return Promise.resolve(null);
    this.lagRunning ??= this.timed(lag, (failure) => ({ lags: [], failure })).finally(
      () => (this.lagRunning = undefined),
    );
    return this.lagRunning;
  }

  private lagReasons({ lags, failure }: OwnedLagLook, isReachable: boolean): string[] {
    const { maxLag = 0, maxLagAgeMs = 0 } = this.deps;
    const long = maxLag > 0 ? lags.filter(({ messages }) => messages > maxLag) : [];
    const old = maxLagAgeMs > 0 ? lags.filter(({ ageMs }) => ageMs > maxLagAgeMs) : [];
    return [
      ...named(
        `more than ${maxLag} messages are unsettled`,
        long.map(({ partition, messages }) => `${partition} (${messages})`),
      ),
      ...named(
        `messages are older than ${maxLagAgeMs} ms`,
        old.map(({ partition, ageMs }) => `${partition} (${Math.round(ageMs)} ms)`),
      ),
      // Where Redis is away, that says enough.
      ...(failure !== undefined && isReachable ? [`the lag cannot be read (${short(failure)})`] : []),
    ];
  }

  /** Never rejects. What comes too late is dropped: the next call starts a look of its own. */
  private timed<T>(look: () => Promise<T>, failed: (why: string) => T): Promise<T> {
    return new Promise((resolve) => {
      const settle = (result: T): void => {
        timer.cancel();
        resolve(result);
      };
      const timer: Timer = this.deps.clock.setTimer(
        () => resolve(failed(`no answer within ${this.timeoutMs} ms`)),
        this.timeoutMs,
      );
      start(look).then(settle, (error: unknown) => settle(failed(codeOf(error))));
    });
  }
}

/** Makes a rejection of what is thrown before the first await. */
async function start<T>(look: () => Promise<T>): Promise<T> {
  return look();
}

function lagFields({ lags, failure }: OwnedLagLook): Record<string, number> | null {
  if (failure !== undefined) return null;
  return {
    messages: lags.reduce((sum, { messages }) => sum + messages, 0),
    oldestMs: Math.round(lags.reduce((oldest, { ageMs }) => Math.max(oldest, ageMs), 0)),
  };
}

function unreachable(reason: string): HealthProbe {
  return { reachable: false, writable: false, reason, topics: 0 };
}

function redisReasons({ reachable, writable, reason }: HealthProbe): string[] {
  if (reachable && writable) return [];
  const sentence = reachable ? 'Redis refuses writes' : 'Redis cannot be reached';
  return [reason === undefined ? sentence : `${sentence} (${short(reason)})`];
}

function quietReasons(loops: readonly LoopState[]): string[] {
  const dead = loops.filter((loop) => !loop.alive);
  const quiet = loops.filter((loop) => loop.alive && loop.lastTickAgoMs > loop.maxQuietMs);
  return [
    ...named(
      'loops have stopped',
      dead.map((loop) => loop.name),
    ),
    ...named(
      'loops have been quiet for too long',
      quiet.map((loop) => loop.name),
    ),
  ];
}

function countLoops(loops: readonly LoopState[]): { total: number; ticking: number } {
  const ticking = loops.filter((loop) => loop.alive && loop.lastTickAgoMs <= loop.maxQuietMs).length;
  return { total: loops.length, ticking };
}

/** `what: a, b and 3 more`, or nothing for no names. */
function named(what: string, names: readonly string[]): string[] {
  if (names.length === 0) return [];
  const more = names.length > MAX_LISTED ? ` and ${names.length - MAX_LISTED} more` : '';
  return [`${what}: ${names.slice(0, MAX_LISTED).join(', ')}${more}`];
}

/** Probes are often public: an error's code says what is wrong, its message may also say where and with which name. */
function codeOf(error: unknown): string {
  const code = (error as { readonly code?: unknown } | null | undefined)?.code;
  return typeof code === 'string' ? short(code) : 'unexpected error';
}

function short(text: string | undefined): string {
  const line = (text ?? '').split('\n', 1)[0] ?? '';
  return line.length > MAX_TEXT ? `${line.slice(0, MAX_TEXT)}…` : line;
}

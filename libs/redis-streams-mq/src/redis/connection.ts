import type { Cluster, Redis } from 'ioredis';
import { pause, type Clock } from '../core/clock.js';
import type { Arg, Outcome, Reply } from './reply.js';
import { redisAway, redisTimeout, replyCode } from './redis-errors.js';
import type { ScriptCall } from './script.js';

export type Client = Redis | Cluster;

/** A command by name, or a script call. */
export type Command = readonly [name: string, ...args: Arg[]];

/**
 * One client of ioredis, seen as commands with byte replies. ioredis never queues and never resends here
 * (see connections.ts): a command is refused when the connection is not ready, and fails when it breaks.
 */
export class Connection {
  private destroyed = false;
  private holdsWrites = false;
  /** The last error while it is not ready. */
  failure: unknown;

  constructor(
    readonly name: string,
    readonly client: Client,
    private readonly clock: Clock,
    /** How long a command waits for a connection that is not ready, in milliseconds. */
    private readonly patienceMs: number = 0,
  ) {}

  /** The same connection for callers that would rather wait that long than be refused while it is not ready. */
  patient(ms: number): Connection {
    return new Connection(this.name, this.client, this.clock, ms);
  }

  get isReady(): boolean {
    return this.client.status === 'ready';
  }

  get isDestroyed(): boolean {
    return this.destroyed;
  }

  /** Resolves true when commands can be sent; false when `timeoutMs` passed or `signal` aborted first. */
  whenReady(timeoutMs: number, signal?: AbortSignal): Promise<boolean> {
    if (this.isReady) return Promise.resolve(true);
    if (this.destroyed || signal?.aborted || timeoutMs <= 0) return Promise.resolve(false);
    return new Promise((resolve) => {
      const finish = (ready: boolean): void => {
        timer.cancel();
        this.client.off('ready', onReady);
        this.client.off('end', onEnd);
        signal?.removeEventListener('abort', onEnd);
        resolve(ready);
      };
      const onReady = (): void => finish(true);
      const onEnd = (): void => finish(false);
      const timer = this.clock.setTimer(onEnd, timeoutMs);
      this.client.once('ready', onReady);
      this.client.once('end', onEnd);
      signal?.addEventListener('abort', onEnd, { once: true });
    });
  }

  /** As `whenReady`, but resolves false as soon as an attempt to connect has failed. */
  async whenConnected(timeoutMs: number): Promise<boolean> {
    const failed = new AbortController();
    const onClose = (): void => failed.abort();
    this.client.once('close', onClose);
    try {
      return await this.whenReady(timeoutMs, failed.signal);
    } finally {
      this.client.off('close', onClose);
    }
  }

  /** Waits `ms` after a fault, or, when the connection is away, until it is back if that is sooner. */
  async backOff(ms: number, signal?: AbortSignal): Promise<void> {
    // One that was closed is not waited for, and whoever tries again must not keep timers from running.
    if (this.isReady || this.destroyed) await pause(this.clock, ms, signal);
    else await this.whenReady(ms, signal);
  }

  private async orRefuse(): Promise<void> {
    if (this.patienceMs > 0 && (await this.whenReady(this.patienceMs))) return;
    throw redisAway(this.name);
  }

  async send(name: string, ...args: Arg[]): Promise<Reply> {
    if (!this.isReady) await this.orRefuse();
    return (await this.client.callBuffer(name, ...args)) as Reply;
  }

  /** Rejects when no answer came within `ms`; the command may still run. */
  async withTimeout<T>(reply: Promise<T>, ms: number): Promise<T> {
    let expire: () => void = () => undefined;
    const expired = new Promise<never>((_, reject) => {
      expire = () => reject(redisTimeout(this.name, ms));
    });
    const timer = this.clock.setTimer(() => expire(), ms);
    try {
      return await Promise.race([reply, expired]);
    } finally {
      timer.cancel();
      reply.catch(() => undefined);
    }
  }

  /** Runs a script by its digest; by its source when this server does not know it yet. */
  async run<R>(call: ScriptCall<R>): Promise<R> {
    if (!this.isReady) await this.orRefuse();
    const { script, args } = call;
    let reply: Reply;
    try {
      reply = (await this.client.callBuffer('EVALSHA', script.sha, ...args)) as Reply;
    } catch (error) {
      if (replyCode(error) !== 'NOSCRIPT') throw error;
      reply = (await this.client.callBuffer('EVAL', script.lua, ...args)) as Reply;
    }
    return script.decode(reply);
  }

  /**
   * Sends commands in one write; answers are in their order. In Cluster all keys must be of one slot.
   * A script that the server does not know is answered NOSCRIPT; `runAll` deals with that.
   */
  async pipeline(commands: readonly Command[]): Promise<Outcome<Reply>[]> {
    if (!this.isReady) await this.orRefuse();
    const { client } = this;
    if (isSingle(client)) {
      // Not with a pipeline of ioredis: what one has read outlives it until the next full garbage collection.
      return this.inOneWrite(() =>
        Promise.all(commands.map(([name, ...args]) => outcomeOf(client.callBuffer(name, ...args)))),
      );
    }
    const pipeline = client.pipeline();
    for (const [name, ...args] of commands) pipeline.callBuffer(name, ...args);
    const results = await pipeline.exec();
    if (results === null) throw redisAway(this.name);
    return results.map(([error, value]) =>
      error === null ? { ok: true, value: value as Reply } : { ok: false, error },
    );
  }

  /**
   * Reads that need no order among themselves; answers are in theirs. ioredis repeats all reads of a Cluster's pipeline at
   * the node that one of them was sent on to: what a half-moved slot has not moved yet would be looked for where it is not.
   */
  async readAll(commands: readonly Command[]): Promise<Outcome<Reply>[]> {
    if (!this.isReady) await this.orRefuse();
    const { client } = this;
    if (isSingle(client)) return this.pipeline(commands);
    return Promise.all(commands.map(([name, ...args]) => outcomeOf(client.callBuffer(name, ...args))));
  }

  /**
   * What `work` sends before it returns leaves in one write, in the order in which it was sent: a write costs more than
   * most commands. In Cluster, where there are sockets to several nodes, it changes nothing.
   */
  inOneWrite<T>(work: () => T): T {
    const stream = socketOf(this.client);
    stream?.cork();
    try {
      return work();
    } finally {
      stream?.uncork();
    }
  }

  /** What is sent in the rest of this turn of the event loop leaves in one write at its end. */
  holdWrites(): void {
    const stream = socketOf(this.client);
    if (this.holdsWrites || stream === undefined) return;
    this.holdsWrites = true;
    stream.cork();
    setImmediate(() => {
      this.holdsWrites = false;
      stream.uncork();
    });
  }

  /** Several script calls in one write. Those answered NOSCRIPT did not run and are run again by source, in order. */
  runAll<R>(calls: readonly ScriptCall<R>[]): Promise<Outcome<R>[]> {
    return this.runTogether(calls, 'EVALSHA');
  }

  /**
   * Calls of one script whose order matters, in one write. The first goes by source, which makes the script known to all
   * behind it: one that someone else makes known between two of them would let the later overtake the earlier.
   */
  runInOrder<R>(calls: readonly ScriptCall<R>[]): Promise<Outcome<R>[]> {
    return this.runTogether(calls, calls.length > 1 ? 'EVAL' : 'EVALSHA');
  }

  private async runTogether<R>(calls: readonly ScriptCall<R>[], first: 'EVAL' | 'EVALSHA'): Promise<Outcome<R>[]> {
    if (calls.length === 0) return [];
    const replies = await this.pipeline(
      calls.map(({ script, args }, i) =>
        i === 0 && first === 'EVAL' ? ['EVAL', script.lua, ...args] : ['EVALSHA', script.sha, ...args],
      ),
    );
    const outcomes: Outcome<R>[] = [];
    for (const [i, reply] of replies.entries()) {
      const call = calls[i]!;
      try {
        if (reply.ok) outcomes.push({ ok: true, value: call.script.decode(reply.value) });
        else if (replyCode(reply.error) === 'NOSCRIPT') outcomes.push({ ok: true, value: await this.run(call) });
        else outcomes.push({ ok: false, error: reply.error });
      } catch (error) {
        outcomes.push({ ok: false, error: error as Error });
      }
    }
    return outcomes;
  }

  /** Closes the socket without waiting for answers; what is outstanding rejects. Idempotent. */
  destroy(): void {
    if (this.destroyed) return;
    this.destroyed = true;
    this.client.disconnect();
  }
}

function isSingle(client: Client): client is Redis {
  return !client.isCluster;
}

/** What a client in memory, and one that has not connected yet, do not have. */
function socketOf(client: Client): Redis['stream'] | undefined {
  return isSingle(client) ? client.stream : undefined;
}

function outcomeOf(reply: Promise<unknown>): Promise<Outcome<Reply>> {
  return reply.then(
    (value) => ({ ok: true, value: value as Reply }),
    (error: unknown) => ({ ok: false, error: error as Error }),
  );
}

import type { Command, Connection } from './connection.js';
import { replyCode } from './redis-errors.js';
import type { Outcome, Reply } from './reply.js';
import { callForMany, type MultiKeyScript, type ScriptCall } from './script.js';

/** Calls, or places that share calls, in one write: some milliseconds of the server's time at most, between which others get their turn. */
const TOGETHER = 50;
/** Places in one call of a script, which nothing interrupts. */
const IN_ONE_CALL = 16;

/**
 * Sends calls or commands whose keys may be of any slots, and answers in their order. On a single node they go in
 * pipelines; in Cluster each goes to its own node, beside the others. An error of one, such as that of a shard which is
 * away, hides no other's answer.
 */
export class Spread {
  constructor(
    private readonly connection: Connection,
    private readonly isCluster: boolean,
  ) {}

  run<R>(calls: readonly ScriptCall<R>[], together: number = TOGETHER): Promise<Outcome<R>[]> {
    return this.inChunks(
      calls,
      (chunk) => this.connection.runAll(chunk),
      (one) => this.connection.run(one),
      together,
    );
  }

  /** Calls of one script, of which `forMany` was made; on a single node many places share a call. */
  async runMany<R>(
    calls: readonly ScriptCall<R>[],
    forMany: MultiKeyScript<readonly Outcome<R>[]>,
  ): Promise<Outcome<R>[]> {
    if (this.isCluster) return this.run(calls);
    const parts: (readonly ScriptCall<R>[])[] = [];
    for (let i = 0; i < calls.length; i += IN_ONE_CALL) parts.push(calls.slice(i, i + IN_ONE_CALL));
    const calledTogether = Math.floor(TOGETHER / IN_ONE_CALL);
    const answers = await this.run(
      parts.map((part) => callForMany(forMany, part)),
      calledTogether,
    );
    const outcomes: Outcome<R>[] = [];
    for (const [i, answer] of answers.entries()) {
      const part = parts[i]!;
      if (answer.ok) outcomes.push(...answer.value);
      // A key of one place that the user may not touch refuses the call for all of them.
      else if (replyCode(answer.error) === 'NOPERM') outcomes.push(...(await this.run(part)));
      else outcomes.push(...part.map(() => answer));
    }
    return outcomes;
  }

  send(commands: readonly Command[]): Promise<Outcome<Reply>[]> {
    return this.inChunks(
      commands,
      (chunk) => this.connection.pipeline(chunk),
      ([name, ...args]) => this.connection.send(name, ...args),
    );
  }

  private async inChunks<T, R>(
    all: readonly T[],
    together: (chunk: readonly T[]) => Promise<Outcome<R>[]>,
    alone: (one: T) => Promise<R>,
    size: number = TOGETHER,
  ): Promise<Outcome<R>[]> {
    const outcomes: Outcome<R>[] = [];
    for (let i = 0; i < all.length; i += size) {
      const chunk = all.slice(i, i + size);
      outcomes.push(
        ...(this.isCluster ? await Promise.all(chunk.map((one) => outcomeOf(alone(one)))) : await together(chunk)),
      );
    }
    return outcomes;
  }
}

/** The answer, or its error thrown. */
export function valueOf<R>(outcome: Outcome<R>): R {
  if (outcome.ok) return outcome.value;
  throw outcome.error;
}

function outcomeOf<R>(answer: Promise<R>): Promise<Outcome<R>> {
  return answer.then(
    (value) => ({ ok: true, value }),
    (error: unknown) => ({ ok: false, error: error as Error }),
  );
}

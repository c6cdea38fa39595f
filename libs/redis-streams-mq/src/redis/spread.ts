import type { Command, Connection } from './connection.js';
import type { Outcome, Reply } from './reply.js';
import { callForMany, type MultiKeyScript, type ScriptCall } from './script.js';

/** Calls in one write: some milliseconds of the server's time at most, between which others get their turn. */
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

  run<R>(calls: readonly ScriptCall<R>[]): Promise<Outcome<R>[]> {
    return this.inChunks(
      calls,
      (chunk) => this.connection.runAll(chunk),
      (one) => this.connection.run(one),
    );
  }

  /** Calls of one script, of which `forMany` was made; on a single node many places share a call. */
  async runMany<R>(
    calls: readonly ScriptCall<R>[],
    forMany: MultiKeyScript<readonly Outcome<R>[]>,
  ): Promise<Outcome<R>[]> {
    if (this.isCluster) return this.run(calls);
    const parts: ScriptCall<readonly Outcome<R>[]>[] = [];
    for (let i = 0; i < calls.length; i += IN_ONE_CALL)
      parts.push(callForMany(forMany, calls.slice(i, i + IN_ONE_CALL)));
    const outcomes = await this.run(parts);
    return outcomes.flatMap((outcome, i) =>
      outcome.ok ? outcome.value : calls.slice(i * IN_ONE_CALL, (i + 1) * IN_ONE_CALL).map(() => outcome),
    );
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
  ): Promise<Outcome<R>[]> {
    const outcomes: Outcome<R>[] = [];
    for (let i = 0; i < all.length; i += TOGETHER) {
      const chunk = all.slice(i, i + TOGETHER);
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

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { waitFor } from '../support/wait-for.js';
import type { Compiled } from './compile.js';
import { type Mutation, mutationFile } from './mutations/mutations.js';
import { monotonicMs, readRecords, type Witnessed } from './programs/record.js';
import type { ChildSetup, FromChild, ToChild } from './programs/setup.js';
import type { Network } from './servers/servers.js';

/** One run of a program: from its start to its end, and how it ended. */
export interface Life {
  readonly process: string;
  readonly from: number;
  to: number;
  /** What was done to it: anything else that ends it is a crash. */
  wish: 'live' | 'be killed' | 'end';
  end: string | undefined;
  readonly output: string;
}

export interface ChildOptions {
  readonly name: string;
  readonly network: Network;
  readonly program: 'consumer' | 'producer';
  /** Of the files of records. */
  readonly folder: string;
  readonly setup: Pick<ChildSetup, 'seed' | 'prefixes' | 'rate'>;
  readonly compiled: Compiled;
  readonly mutation?: Mutation;
}

const PROGRAMS = 'test/torture/programs';
const OUTPUT_KEPT = 4_000;
/** On a machine that has much else to do. */
const LOAD_MS = 120_000;

/** A process that has loaded its code and waits to be told to begin: loading takes seconds on a busy machine. */
interface Standby {
  readonly child: ChildProcess;
  loaded: boolean;
  output: string;
}

/** A child process through all its lives: each has a file of records of its own. */
export class Child {
  readonly lives: Life[] = [];
  /** A fault has it in its hands. */
  busy = false;
  private child: ChildProcess | undefined;
  private standby: Standby | undefined;
  private up = false;
  private done = false;
  private stopped = false;
  private goes = false;

  constructor(private readonly options: ChildOptions) {}

  get name(): string {
    return this.options.name;
  }

  get kind(): ChildOptions['program'] {
    return this.options.program;
  }

  get network(): Network {
    return this.options.network;
  }

  get isUp(): boolean {
    return this.up;
  }

  /** Begins the next life; resolves when it is up. */
  async start(): Promise<void> {
    const standby = await this.prepared();
    this.standby = undefined;
    this.begin(standby);
    const { life } = this;
    const describe = `${life.process} to be up; it said: ${life.output}`;
    await waitFor(() => this.up || life.end !== undefined, { timeoutMs: LOAD_MS, describe });
    if (!this.up) throw new Error(`${life.process} ended (${life.end}): ${life.output}`);
    if (this.goes) this.tell('go');
  }

  /** Has the next life loaded beside this one. */
  prepare(): void {
    this.standby ??= this.load();
  }

  async prepared(): Promise<Standby> {
    const standby = (this.standby ??= this.load());
    const describe = `${this.name} to load; it said: ${standby.output}`;
    await waitFor(() => standby.loaded || standby.child.exitCode !== null, { timeoutMs: LOAD_MS, describe });
    if (!standby.loaded) throw new Error(`${this.name} ended while it loaded: ${standby.output}`);
    return standby;
  }

  /** A producer that was told to go is told again in each of its lives, until it is to stop. */
  tell(message: ToChild): void {
    if (message !== 'write your state') this.goes = message === 'go';
    if (this.child?.connected) this.child.send(message);
  }

  /** Resolves when the program says that it has done what it was told. */
  async untilDone(timeoutMs: number): Promise<void> {
    await waitFor(() => this.done, { timeoutMs, describe: `${this.name} to be done` });
  }

  async kill(): Promise<void> {
    const { life } = this;
    if (life.end !== undefined) return;
    life.wish = 'be killed';
    life.to = monotonicMs();
    this.up = false;
    const exited = once(this.child!, 'exit');
    this.child!.kill('SIGKILL');
    await exited;
  }

  /** SIGTERM; resolves with how long it took to end, or throws when it did not in time. */
  async terminate(timeoutMs: number): Promise<number> {
    const { life } = this;
    const since = monotonicMs();
    life.wish = 'end';
    this.up = false;
    this.child!.kill('SIGTERM');
    await waitFor(() => life.end !== undefined, { timeoutMs, describe: `${life.process} to end after SIGTERM` });
    return monotonicMs() - since;
  }

  pause(): void {
    this.stopped = true;
    this.child!.kill('SIGSTOP');
  }

  resume(): void {
    if (this.stopped && this.life.end === undefined) this.child!.kill('SIGCONT');
    this.stopped = false;
  }

  /** For the end of this process, which cannot wait. */
  abandon(): void {
    this.child?.kill('SIGKILL');
    this.standby?.child.kill('SIGKILL');
  }

  records(): Witnessed[] {
    return this.lives.flatMap((life) => {
      const records = readRecords(this.fileOf(life.process), life.process);
      // A process lives a little longer than the order to end it.
      const last = records.at(-1)?.at ?? 0;
      if (last > life.to) life.to = last;
      return records;
    });
  }

  private load(): Standby {
    const { program, mutation, compiled } = this.options;
    const child = fork(compiled.pathOf(join(PROGRAMS, `${program}.ts`)), [], {
      execArgv: mutation === undefined ? [] : ['--import', `./${compiled.pathOf(mutationFile(mutation))}`],
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    const standby: Standby = { child, loaded: false, output: '' };
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (text: Buffer) => (standby.output = (standby.output + text.toString()).slice(-OUTPUT_KEPT)));
    }
    child.once('message', () => (standby.loaded = true));
    return standby;
  }

  private begin(standby: Standby): void {
    const { child } = standby;
    const process = `${this.name}#${this.lives.length + 1}`;
    const life: Life = {
      process,
      from: monotonicMs(),
      to: Infinity,
      wish: 'live',
      end: undefined,
      get output() {
        return standby.output;
      },
    };
    this.lives.push(life);
    this.child = child;
    this.up = this.stopped = this.done = false;
    child.on('message', (message: FromChild) => {
      if (message === 'up') this.up = true;
      else this.done = true;
    });
    child.on('exit', (code, signal) => {
      if (this.child === child) this.up = false;
      life.end = signal ?? `exit code ${code}`;
      if (life.to === Infinity) life.to = monotonicMs();
    });
    const { redis } = this.network;
    child.send({ ...this.options.setup, redis, process, file: this.fileOf(process) } satisfies ChildSetup);
  }

  private get life(): Life {
    return this.lives.at(-1)!;
  }

  private fileOf(process: string): string {
    return join(this.options.folder, `${process}.jsonl`);
  }
}

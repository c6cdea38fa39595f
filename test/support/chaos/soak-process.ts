import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { TcpProxy } from '../tcp-proxy.js';
import { waitFor } from '../wait-for.js';
import { monotonicMs, readRecords, type Witnessed } from './soak-record.js';
import type { ChildSetup, FromSoakChild, ToSoakChild } from './soak-setup.js';

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

const OUTPUT_KEPT = 4_000;
/** On a machine that has much else to do. */
const LOAD_MS = 120_000;

/** A process that has loaded its code and waits to be told to begin: loading takes seconds on a busy machine. */
interface Standby {
  readonly child: ChildProcess;
  loaded: boolean;
  output: string;
}

/** A child of the soak test, through all its lives: each has a file of records of its own. */
export class SoakProcess {
  readonly lives: Life[] = [];
  /** A fault has it in its hands. */
  busy = false;
  private child: ChildProcess | undefined;
  private standby: Standby | undefined;
  private up = false;
  private done = false;
  private stopped = false;

  constructor(
    readonly name: string,
    readonly proxy: TcpProxy,
    private readonly program: string,
    private readonly folder: string,
    private readonly setup: Omit<ChildSetup, 'url' | 'file'>,
  ) {}

  get isUp(): boolean {
    return this.up;
  }

  /** Begins the next life; resolves when it is up, and has the one after it loaded meanwhile. */
  async start(timeoutMs = LOAD_MS): Promise<void> {
    const standby = await this.prepared(timeoutMs);
    this.standby = undefined;
    this.begin(standby);
    const { life } = this;
    const describe = `${life.process} to be up; it said: ${life.output}`;
    await waitFor(() => this.up || life.end !== undefined, { timeoutMs, describe });
    if (!this.up) throw new Error(`${life.process} ended (${life.end}): ${life.output}`);
  }

  /** Has the next life loaded beside this one. */
  prepare(): void {
    this.standby ??= this.load();
  }

  async prepared(timeoutMs = LOAD_MS): Promise<Standby> {
    const standby = (this.standby ??= this.load());
    await waitFor(() => standby.loaded, { timeoutMs, describe: `${this.name} to load; it said: ${standby.output}` });
    return standby;
  }

  private load(): Standby {
    const child = fork(join('test/support/programs', this.program), [], {
      execArgv: ['--conditions=@redis-streams-mq/source', '--import', '@swc-node/register/esm-register'],
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
    const life: Life = {
      process: `${this.name}#${this.lives.length + 1}`,
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
    this.up = this.stopped = false;
    child.on('message', (message: FromSoakChild) => {
      if (message === 'up') this.up = true;
      else this.done = true;
    });
    child.on('exit', (code, signal) => {
      if (this.child === child) this.up = false;
      life.end = signal ?? `exit code ${code}`;
      if (life.to === Infinity) life.to = monotonicMs();
    });
    child.send({ ...this.setup, url: this.proxy.url, file: this.fileOf(life) } satisfies ChildSetup);
  }

  tell(message: ToSoakChild): void {
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
      const records = readRecords(this.fileOf(life), life.process);
      // A process lives a little longer than the order to end it.
      const last = records.at(-1)?.at ?? 0;
      if (last > life.to) life.to = last;
      return records;
    });
  }

  private get life(): Life {
    return this.lives.at(-1)!;
  }

  private fileOf(life: Life): string {
    return join(this.folder, `${life.process}.jsonl`);
  }
}

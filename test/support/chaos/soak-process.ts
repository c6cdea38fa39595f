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
  output: string;
}

const OUTPUT_KEPT = 4_000;

/** A child of the soak test, through all its lives: each has a file of records of its own. */
export class SoakProcess {
  readonly lives: Life[] = [];
  /** A fault has it in its hands. */
  busy = false;
  private child: ChildProcess | undefined;
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

  start(): void {
    const process = `${this.name}#${this.lives.length + 1}`;
    const life: Life = { process, from: monotonicMs(), to: Infinity, wish: 'live', end: undefined, output: '' };
    this.lives.push(life);
    const setup: ChildSetup = { ...this.setup, url: this.proxy.url, file: this.fileOf(life) };
    const child = fork(join('test/support/programs', this.program), [JSON.stringify(setup)], {
      execArgv: ['--conditions=@redis-streams-mq/source', '--import', '@swc-node/register/esm-register'],
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    this.child = child;
    this.up = this.stopped = false;
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (text: Buffer) => (life.output = (life.output + text.toString()).slice(-OUTPUT_KEPT)));
    }
    child.on('message', (message: FromSoakChild) => {
      if (message === 'up') this.up = true;
      else this.done = true;
    });
    child.on('exit', (code, signal) => {
      if (this.child === child) this.up = false;
      life.end = signal ?? `exit code ${code}`;
      if (life.to === Infinity) life.to = monotonicMs();
    });
  }

  async untilUp(timeoutMs = 60_000): Promise<void> {
    const { life } = this;
    const describe = `${life.process} to be up; it said: ${life.output}`;
    await waitFor(() => this.up || life.end !== undefined, { timeoutMs, describe });
    if (!this.up) throw new Error(`${life.process} ended (${life.end}): ${life.output}`);
  }

  tell(message: ToSoakChild): void {
    this.child?.send(message);
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

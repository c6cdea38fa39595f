import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { ChildSetup, FromChild, ToChild } from './child-protocol.js';
import { EventLog } from './event-log.js';
import { type HandlerCall, type HandlingRecord, nowMs } from './handling-record.js';
import { waitFor } from './wait-for.js';

/** An instance of the engine in a process of its own, which a test can kill, stop and resume. */
export class Child {
  readonly events = new EventLog();
  /** How long its orderly shutdown took, once it said so. */
  closedAfterMs: number | undefined;
  private readonly process: ChildProcess;
  private readonly calls = new Map<number, HandlerCall>();
  private metrics: string | undefined;
  private loaded = false;
  private started = false;
  private output = '';
  private ended: { code: number | null; signal: NodeJS.Signals | null } | undefined;

  private record: HandlingRecord | undefined;

  private constructor(env: NodeJS.ProcessEnv) {
    this.process = fork(join(process.cwd(), 'test/support/child-instance.ts'), {
      execArgv: ['--conditions=@redis-streams-mq/source', '--import', '@swc-node/register/esm-register'],
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      serialization: 'advanced',
      env: { ...process.env, ...env },
    });
    this.process.on('message', (message: FromChild) => this.heard(message));
    this.process.on('exit', (code, signal) => {
      this.ended = { code, signal };
      for (const call of this.calls.values()) call.endedAt ??= nowMs();
    });
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream?.on('data', (text: Buffer) => (this.output += text.toString()));
    }
  }

  /** A process that is ready to become an instance without delay: loading the code takes a second or more. */
  static async load(env: NodeJS.ProcessEnv = {}): Promise<Child> {
    const child = new Child(env);
    await child.until(() => child.loaded, 'the child to load', 30_000);
    return child;
  }

  /** Opens the instance and starts its handlers, which enter their calls into `record`. */
  async begin(setup: ChildSetup, record: HandlingRecord): Promise<void> {
    this.record = record;
    this.send({ type: 'setup', setup });
    await this.until(() => this.started, 'the child to start');
  }

  /** Its metrics, as Prometheus would get them. */
  async scrape(): Promise<string> {
    this.metrics = undefined;
    this.send({ type: 'scrape' });
    await this.until(() => this.metrics !== undefined, 'the metrics');
    return this.metrics!;
  }

  get hasEnded(): boolean {
    return this.ended !== undefined;
  }

  /** SIGKILL; resolves when the process is gone. */
  async kill(): Promise<void> {
    if (this.ended) return;
    const exited = once(this.process, 'exit');
    this.process.kill('SIGKILL');
    await exited;
  }

  /** SIGTERM, and whether the process ended by itself with code 0. */
  async terminate(): Promise<boolean> {
    const exited = once(this.process, 'exit');
    this.process.kill('SIGTERM');
    await exited;
    return this.ended?.code === 0;
  }

  /** Closes the instance without a signal; resolves true when the process then ended for want of anything to do. */
  async close(): Promise<boolean> {
    const exited = once(this.process, 'exit');
    this.send({ type: 'close' });
    await exited;
    return this.ended?.code === 0;
  }

  /** SIGSTOP: nothing of it runs, its connections stay open. */
  pause(): void {
    this.process.kill('SIGSTOP');
  }

  resume(): void {
    this.process.kill('SIGCONT');
  }

  private async until(condition: () => boolean, what: string, timeoutMs = 10_000): Promise<void> {
    await waitFor(() => this.hasEnded || condition(), { timeoutMs, describe: `${what}; it said: ${this.output}` });
    if (this.ended) throw new Error(`the child ended (${this.ended.code ?? this.ended.signal}): ${this.output}`);
  }

  private send(message: ToChild): void {
    this.process.send(message);
  }

  private heard(message: FromChild): void {
    switch (message.type) {
      case 'loaded':
        this.loaded = true;
        break;
      case 'started':
        this.started = true;
        break;
      case 'call':
        this.calls.set(message.at, message.call);
        this.record?.calls.push(message.call);
        break;
      case 'end':
        this.calls.get(message.at)!.endedAt = message.endedAt;
        break;
      case 'event':
        this.events.add(message.name, message.payload, message.at);
        break;
      case 'metrics':
        this.metrics = message.text;
        break;
      case 'closed':
        this.closedAfterMs = message.afterMs;
        break;
    }
  }
}

import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Figures } from '../scenario.js';
import type { FromWorker, RunRound, WorkerSettings } from './protocol.js';

const ROUND_TIMEOUT_MS = 180_000;

/** The parent's side of one process. */
export class Worker {
  private constructor(
    private readonly child: ChildProcess,
    private readonly name: string,
    private readonly timeoutMs: number,
  ) {}

  static async start(settings: WorkerSettings, timeoutMs: number = ROUND_TIMEOUT_MS): Promise<Worker> {
    const name = `${settings.scenario} ${settings.entry}`;
    const execArgv = ['--expose-gc'];
    const child = fork(join(import.meta.dirname, 'main.js'), [JSON.stringify(settings)], { execArgv });
    const worker = new Worker(child, name, timeoutMs);
    await worker.next();
    return worker;
  }

  async round(isWarmUp: boolean): Promise<Figures> {
    const answer = this.next();
    if (this.child.connected) this.child.send({ type: 'round', isWarmUp } satisfies RunRound);
    const message = await answer;
    if (message.type !== 'figures')
      throw new Error(`${this.name}: ${message.type === 'failed' ? message.error : 'unexpected answer'}`);
    return message.figures;
  }

  /** Ends the process. */
  async stop(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const exited = once(this.child, 'exit');
    if (this.child.connected) this.child.disconnect();
    const timer = setTimeout(() => this.child.kill('SIGKILL'), 20_000);
    await exited;
    clearTimeout(timer);
  }

  private next(): Promise<FromWorker> {
    return new Promise((resolve, reject) => {
      if (!this.child.connected) return reject(new Error(`${this.name}: its process has ended`));
      const settle = (): void => {
        clearTimeout(timer);
        this.child.off('message', onMessage).off('exit', onExit);
      };
      const onMessage = (message: FromWorker): void => {
        settle();
        resolve(message);
      };
      const onExit = (code: number | null, signal: string | null): void => {
        settle();
        reject(new Error(`${this.name}: its process ended (${signal ?? code})`));
      };
      const timer = setTimeout(() => {
        settle();
        this.child.kill('SIGKILL');
        reject(new Error(`${this.name}: no answer within ${this.timeoutMs} ms`));
      }, this.timeoutMs);
      this.child.on('message', onMessage).on('exit', onExit);
    });
  }
}

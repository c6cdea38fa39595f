import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { RunError } from '../run-error.js';
import type { ConsumerSettings, FromConsumer, HandlerCall, StoredResult, ToConsumer } from './ipc-messages.js';

export interface ConsumerListener {
  onCall(instance: number, call: HandlerCall): void;
  onResult(result: StoredResult): void;
  onLog(instance: number, line: string): void;
}

const ENTRY = fileURLToPath(new URL('../consumer.js', import.meta.url));
/** Longer than the queue's own bound for draining. */
const STOP_DEADLINE_MS = 40_000;

/** One consumer process, from the coordinator's side. */
export class ConsumerProcess {
  private readonly child: ChildProcess;
  /** Why it ended, if it did. */
  private ended: string | undefined;

  constructor(
    private readonly instance: number,
    settings: ConsumerSettings,
    private readonly listener: ConsumerListener,
  ) {
    this.child = fork(ENTRY, [JSON.stringify(settings)], { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] });
    for (const stream of [this.child.stdout!, this.child.stderr!]) {
      createInterface({ input: stream }).on('line', (line) => this.listener.onLog(this.instance, line));
    }
    this.child.on('message', (message: FromConsumer) => this.receive(message));
    this.child.once('error', (error) => (this.ended = error.message));
    this.child.once('exit', (code, signal) => (this.ended = signal ? `killed by ${signal}` : `exit code ${code}`));
  }

  /** The address of its HTTP server, once it consumes. To be called right after construction. */
  async ready(): Promise<string> {
    return (await this.next('ready')).url;
  }

  async deployFix(): Promise<void> {
    this.tell({ type: 'deploy-fix' });
    await this.next('fix-deployed');
  }

  assertRunning(): void {
    if (this.ended !== undefined) throw this.endedError();
  }

  /** Lets it finish what it handles; ends it by force if that takes too long. */
  async stop(): Promise<void> {
    if (this.ended !== undefined) return;
    const exited = once(this.child, 'exit');
    this.tell({ type: 'stop' });
    const force = setTimeout(() => {
      console.error(`Instance ${this.instance} did not stop within ${STOP_DEADLINE_MS / 1000} s; ending it by force.`);
      this.child.kill('SIGKILL');
    }, STOP_DEADLINE_MS);
    await exited;
    clearTimeout(force);
  }

  private receive(message: FromConsumer): void {
    if (message.type !== 'records') return;
    for (const result of message.results) this.listener.onResult(result);
    for (const call of message.calls) this.listener.onCall(this.instance, call);
  }

  /** The next message of this type. @throws when the process ends first. */
  private next<T extends FromConsumer['type']>(type: T): Promise<Extract<FromConsumer, { type: T }>> {
    return new Promise((resolve, reject) => {
      const onMessage = (message: FromConsumer): void => {
        if (message.type === type) settle(() => resolve(message as Extract<FromConsumer, { type: T }>));
      };
      const onExit = (): void => settle(() => reject(this.endedError()));
      const settle = (outcome: () => void): void => {
        this.child.off('message', onMessage).off('exit', onExit).off('error', onExit);
        outcome();
      };
      this.child.on('message', onMessage).on('exit', onExit).on('error', onExit);
    });
  }

  private endedError(): RunError {
    return new RunError(`Consumer instance ${this.instance} ended unexpectedly: ${this.ended}`);
  }

  private tell(message: ToConsumer): void {
    if (this.child.connected) this.child.send(message);
  }
}

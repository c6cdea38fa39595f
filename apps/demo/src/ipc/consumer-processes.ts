import { ConsumerProcess, type ConsumerListener } from './consumer-process.js';
import type { ConsumerSettings } from './ipc-messages.js';

/** All consumer processes of a run. */
export class ConsumerProcesses {
  private readonly all: readonly ConsumerProcess[];

  constructor(count: number, settings: ConsumerSettings, listener: ConsumerListener) {
    this.all = Array.from({ length: count }, (_, i) => new ConsumerProcess(i + 1, settings, listener));
  }

  /** Addresses of their HTTP servers, once all of them are consuming. To be called right after construction. */
  ready(): Promise<string[]> {
    return Promise.all(this.all.map((process) => process.ready()));
  }

  async deployFix(): Promise<void> {
    await Promise.all(this.all.map((process) => process.deployFix()));
  }

  /** @throws when one has ended that should be running. */
  assertRunning(): void {
    for (const process of this.all) process.assertRunning();
  }

  async stop(): Promise<void> {
    await Promise.all(this.all.map((process) => process.stop()));
  }
}

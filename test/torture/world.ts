import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import { Child } from './child.js';
import { compile } from './compile.js';
import type { MachineWatch } from './faults/machine-watch.js';
import type { TortureOptions } from './options.js';
import { startServers } from './servers/start.js';
import type { Servers } from './servers/servers.js';

const PREFIXES = { keyPrefix: 'torture:mq', streamKeyPrefix: 'torture:topic' };

/** The servers and the processes that use them, each through proxies of its own. */
export class World {
  readonly keys = new Keys(PREFIXES.keyPrefix, PREFIXES.streamKeyPrefix);
  readonly prefixes = PREFIXES;
  readonly consumers: Child[] = [];
  readonly producers: Child[] = [];
  /** Of the records. */
  readonly folder: string = mkdtempSync(join(tmpdir(), 'mq-torture-'));
  private readonly compiled = compile();
  private readonly abandon = (): void => {
    for (const child of this.children) child.abandon();
    this.compiled.remove();
  };

  private constructor(
    readonly servers: Servers,
    private readonly options: TortureOptions,
  ) {
    process.on('exit', this.abandon);
  }

  /** Resolves when all processes are up. */
  static async start(options: TortureOptions, machine: MachineWatch): Promise<World> {
    const servers = await startServers(options.redis);
    const world = new World(servers, options);
    machine.watchServer(servers.client());
    try {
      for (let i = 1; i <= options.consumers; i++) world.consumers.push(await world.child('consumer', i));
      for (let i = 1; i <= options.producers; i++) world.producers.push(await world.child('producer', i));
      await Promise.all(world.children.map((child) => child.start()));
      for (const child of world.children) await child.prepared();
      return world;
    } catch (error) {
      machine.end();
      await world.end();
      throw error;
    }
  }

  get children(): readonly Child[] {
    return [...this.producers, ...this.consumers];
  }

  async end(): Promise<void> {
    this.abandon();
    process.off('exit', this.abandon);
    await Promise.all(this.children.map(({ network }) => network.stop()));
    await this.servers.stop();
  }

  private async child(program: 'consumer' | 'producer', number: number): Promise<Child> {
    const { seed, rate, producers, mutation } = this.options;
    return new Child({
      name: `${program}-${number}`,
      network: await this.servers.network(),
      program,
      folder: this.folder,
      setup: { seed, prefixes: this.prefixes, rate: rate / producers },
      compiled: this.compiled,
      ...(mutation !== undefined && { mutation }),
    });
  }
}

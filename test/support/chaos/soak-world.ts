import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { Keys } from '../../../libs/redis-streams-mq/src/core/keys.js';
import { startRedis, type TestRedis } from '../redis-server.js';
import { startProxy } from '../tcp-proxy.js';
import { between, randomOf } from './random.js';
import type { MachineWatch } from './machine-watch.js';
import { SoakProcess } from './soak-process.js';
import { CONSUMERS, PRODUCERS } from './soak-setup.js';

/** A Redis and the processes that use it, each through a proxy of its own. */
export class SoakWorld {
  readonly keys: Keys;
  /** Straight to the server. */
  readonly client: Redis;
  readonly consumers: SoakProcess[] = [];
  readonly producers: SoakProcess[] = [];
  private readonly abandon = (): void => this.children.forEach((child) => child.abandon());

  private constructor(
    readonly redis: TestRedis,
    readonly folder: string,
    readonly killsRedis: boolean,
    /** Messages a second, over all producers. */
    readonly rate: number,
  ) {
    this.client = redis.client();
    const { keyPrefix, streamKeyPrefix } = this.prefixes;
    this.keys = new Keys(keyPrefix, streamKeyPrefix);
    process.on('exit', this.abandon);
  }

  /** Resolves when all processes are up. */
  static async start(seed: string, machine: MachineWatch): Promise<SoakWorld> {
    const random = randomOf(`${seed}/run`);
    const killsRedis = random() < 0.5;
    const rate = Math.round(between(random, 200, 400));
    // Killed with everysec, it may forget what it has accepted; what then is lost is not ours to keep.
    const redis = await startRedis({ aof: true, args: ['--appendfsync', killsRedis ? 'always' : 'everysec'] });
    const world = new SoakWorld(redis, mkdtempSync(join(tmpdir(), `mq-soak-${seed}-`)), killsRedis, rate);
    machine.watchServer(world.client);
    try {
      for (let i = 0; i < CONSUMERS; i++) world.consumers.push(await world.child('consumer', seed, i));
      for (let i = 0; i < PRODUCERS; i++) world.producers.push(await world.child('producer', seed, i));
      await Promise.all(world.children.map((child) => child.start()));
      for (const consumer of world.consumers) await consumer.prepared();
      return world;
    } catch (error) {
      machine.end();
      await world.end();
      throw error;
    }
  }

  get children(): readonly SoakProcess[] {
    return [...this.producers, ...this.consumers];
  }

  get prefixes(): { readonly keyPrefix: string; readonly streamKeyPrefix: string } {
    return { keyPrefix: `${this.redis.keyPrefix}:mq`, streamKeyPrefix: `${this.redis.keyPrefix}:topic` };
  }

  async end(): Promise<void> {
    this.abandon();
    process.off('exit', this.abandon);
    await Promise.all(this.children.map(({ proxy }) => proxy.stop()));
    await this.redis.stop();
  }

  private async child(kind: 'consumer' | 'producer', seed: string, index: number): Promise<SoakProcess> {
    const setup = { seed, prefixes: this.prefixes, index, rate: this.rate / PRODUCERS };
    const proxy = await startProxy(this.redis.port);
    return new SoakProcess(`${kind}-${index + 1}`, proxy, `soak-${kind}.ts`, this.folder, setup);
  }
}

import type { ContenderName } from '../contenders/contender.js';
import type { Durability } from '../environment.js';
import type { Scenario } from '../scenario.js';
import { startNats } from './nats.js';
import { startRabbitmq } from './rabbitmq.js';
import { startRedis } from './redis.js';
import { startRedisCluster } from './redis-cluster.js';
import { MissingServerError, type RunningServer } from './running-server.js';

/** Starts what the contenders of a scenario need; those whose server is missing are named with the reason. */
export class Servers {
  readonly missing = new Map<ContenderName, string>();
  private readonly running: RunningServer[] = [];
  private readonly own = new Map<ContenderName, RunningServer>();
  private redis: RunningServer | undefined;

  static async start(
    kind: Scenario['server'],
    contenders: ReadonlySet<ContenderName>,
    durability: Durability,
  ): Promise<Servers> {
    const servers = new Servers();
    try {
      await servers.startAll(kind, contenders, durability);
    } catch (error) {
      await servers.stop();
      throw error;
    }
    return servers;
  }

  of(contender: ContenderName): RunningServer {
    return this.own.get(contender) ?? this.redis!;
  }

  async stop(): Promise<void> {
    await Promise.all(this.running.map((server) => server.stop()));
  }

  private async startAll(
    kind: Scenario['server'],
    contenders: ReadonlySet<ContenderName>,
    durability: Durability,
  ): Promise<void> {
    this.redis = await this.keep(kind === 'cluster' ? startRedisCluster(durability) : startRedis(durability));
    const others = { nats: startNats, rabbitmq: startRabbitmq };
    for (const [name, start] of Object.entries(others) as [keyof typeof others, () => Promise<RunningServer>][]) {
      if (!contenders.has(name)) continue;
      try {
        this.own.set(name, await this.keep(start()));
      } catch (error) {
        if (!(error instanceof MissingServerError)) throw error;
        this.missing.set(name, error.message);
      }
    }
  }

  private async keep(starting: Promise<RunningServer>): Promise<RunningServer> {
    const server = await starting;
    this.running.push(server);
    return server;
  }
}

import type { Contender, ContenderContext, ContenderFactory, ContenderName } from './contender.js';

/** Loaded one at a time: a process has the code of its own contender only. */
const factories: Readonly<Record<ContenderName, () => Promise<ContenderFactory>>> = {
  ours: async () => (await import('./ours.js')).makeOurs,
  engine: async () => (await import('./engine.js')).makeEngine,
  raw: async () => (await import('./raw.js')).makeRaw,
  bullmq: async () => (await import('./bullmq.js')).makeBullmq,
  nats: async () => (await import('./nats.js')).makeNats,
  rabbitmq: async () => (await import('./rabbitmq.js')).makeRabbitmq,
  'redis-streams-broker': async () => (await import('./redis-streams-broker.js')).makeRedisStreamsBroker,
};

export async function openContender(name: ContenderName, context: ContenderContext): Promise<Contender> {
  return (await factories[name]())(context);
}

// Runs in a process of its own: an instance of the engine that a test can kill or stop. See child.ts.
import { setTimeout as sleep } from 'node:timers/promises';
import { Registry } from 'prom-client';
import type { MqEventName } from '../../libs/redis-streams-mq/src/core/events.js';
import type { ReceivedMessage } from '../../libs/redis-streams-mq/src/core/handler.js';
import type { ChildBehaviour, ChildSetup, FromChild, ToChild } from './child-protocol.js';
import { TestInstance } from './engine.js';
import { nowMs, toCall } from './handling-record.js';

const REPORTED: readonly MqEventName[] = [
  'leaseAcquired',
  'leaseReleased',
  'leaseLost',
  'takenOver',
  'ledgerRepaired',
  'payloadMissing',
  'dead',
  'retried',
  'rebalanced',
  'warning',
  'fault',
];

const registry = new Registry();
let instance: TestInstance | undefined;
let calls = 0;

/** Resolves when the parent has it, as far as this process can know. */
function tell(message: FromChild): Promise<void> {
  return new Promise((resolve) => {
    if (process.connected) process.send!(message, undefined, undefined, () => resolve());
    else resolve();
  });
}

async function work(n: number, behaviour: ChildBehaviour, told: Promise<void>): Promise<void> {
  const { handleMs = 0, slowOn = {}, spinOn = {}, dieOn = [], failOn = [] } = behaviour;
  if (dieOn.includes(n)) {
    await told;
    process.kill(process.pid, 'SIGKILL');
  }
  const spinUntil = nowMs() + (spinOn[n] ?? 0);
  if (spinOn[n] !== undefined) await told;
  while (nowMs() < spinUntil);
  const takesMs = slowOn[n] ?? handleMs;
  if (takesMs > 0) await sleep(takesMs);
  if (failOn.includes(n)) throw new Error(`fails on ${n}`);
}

function skewClock(byMs: number): void {
  const now = Date.now.bind(Date);
  Date.now = () => now() + byMs;
}

async function start({ name, options, handlers, clockSkewMs = 0 }: ChildSetup): Promise<void> {
  if (clockSkewMs !== 0) skewClock(clockSkewMs);
  instance = await TestInstance.open(options, { registry });
  for (const event of REPORTED) {
    instance.runtime.events.on(event, (payload) => {
      const { error } = payload as { error?: unknown };
      const told = error instanceof Error ? { ...payload, error: `${error.name}: ${error.message}` } : payload;
      void tell({ type: 'event', name: event, payload: told, at: nowMs() });
    });
  }
  const handle = (behaviour: ChildBehaviour) => async (message: ReceivedMessage) => {
    const at = calls++;
    const call = toCall(name, message);
    const told = tell({ type: 'call', at, call });
    try {
      await work(call.n, behaviour, told);
    } finally {
      void tell({ type: 'end', at, endedAt: nowMs() });
    }
  };
  await instance.start(
    ...handlers.map(({ behaviour = {}, ...rest }) => {
      const one = handle(behaviour);
      const handleBatch = async (messages: readonly ReceivedMessage[]): Promise<void> => {
        for (const message of messages) await one(message);
      };
      return { ...rest, handle: one, ...(rest.options?.batch && { handleBatch }) };
    }),
  );
  await tell({ type: 'started' });
}

async function close(): Promise<void> {
  const since = nowMs();
  await instance?.close();
  await tell({ type: 'closed', afterMs: nowMs() - since });
}

/** As Nest does on a signal: once the shutdown hooks are through, the process goes, whatever still runs. */
async function stop(): Promise<void> {
  await close();
  process.exit(0);
}

/** The test is over or dead: this process must not outlive it. */
const leave = (): void => process.exit(0);

/** Ends only if nothing keeps the process alive any more. */
async function closeAndWait(): Promise<void> {
  await close();
  process.off('disconnect', leave);
  process.disconnect();
}

async function scrape(): Promise<void> {
  await tell({ type: 'metrics', text: await registry.metrics() });
}

function obey(message: ToChild): Promise<void> {
  switch (message.type) {
    case 'setup':
      return start(message.setup);
    case 'scrape':
      return scrape();
    case 'close':
      return closeAndWait();
  }
}

process.on('message', (message: ToChild) => {
  obey(message).catch((error: unknown) => {
    console.error(error);
    process.exit(1);
  });
});
process.on('SIGTERM', () => void stop());
process.on('disconnect', leave);
void tell({ type: 'loaded' });

import type { MqEvents } from '../../../libs/redis-streams-mq/src/core/events.js';
import { PartitionConsumer } from '../../../libs/redis-streams-mq/src/consumer/partition-consumer.js';
import { type RecordFile, watchStalls } from './record.js';

/** Writes down what the engine says about itself, and anything that would end the process; ties it to its parent. */
export function witness(events: MqEvents, record: RecordFile): void {
  type Lease = { readonly group: string; readonly partition: number; readonly epoch: number };
  const lease = (change: 'acquired' | 'released' | 'lost', { group, partition, epoch }: Lease, why: string): void =>
    record.write({ type: 'lease', change, group, partition, epoch, why });
  events.on('leaseAcquired', (payload) => lease('acquired', payload, payload.clean ? 'clean' : 'unclean'));
  events.on('leaseReleased', (payload) => lease('released', payload, ''));
  events.on('leaseLost', (payload) => lease('lost', payload, payload.reason));
  for (const name of [
    'takenOver',
    'ledgerRepaired',
    'payloadMissing',
    'healed',
    'warning',
    'readerReplaced',
  ] as const) {
    events.on(name, (payload) => record.write({ type: 'engine', event: name, detail: JSON.stringify(payload) }));
  }
  events.on('dead', ({ group, partition, id, reason }) =>
    record.write({ type: 'engine', event: 'dead', detail: `${group}:${partition} ${id} ${reason}` }),
  );
  events.on('fault', ({ component, class: kind, error }) => {
    const event = kind === 'transient' ? 'fault' : `fault (${kind})`;
    const text = kind === 'unexpected' && error instanceof Error ? (error.stack ?? error.message) : String(error);
    record.write({ type: 'engine', event, detail: `${component}: ${text}` });
  });
  for (const kind of ['uncaughtException', 'unhandledRejection'] as const) {
    process.on(kind, (error: unknown) => {
      const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
      record.write({ type: 'crash', detail: `${kind}: ${text}` });
      process.exit(70);
    });
  }
  watchStalls((ms) => record.write({ type: 'stall', ms }));
  process.on('disconnect', () => process.exit(0));
}

/** Keeps hold of the partitions that this process consumes; the function returned writes down what state they are in. */
export function watchPartitions(record: RecordFile): () => void {
  const partitions = new Set<PartitionConsumer>();
  const start = Reflect.get(PartitionConsumer.prototype, 'start') as (this: PartitionConsumer) => void;
  PartitionConsumer.prototype.start = function (): void {
    partitions.add(this);
    start.call(this);
  };
  return () => {
    for (const partition of partitions) {
      const { isEnded, isTrusted, terms } = partition.lease;
      if (isEnded) continue;
      const parts = Object.entries(partition)
        .filter(([name]) => name !== 'deps')
        .map(([name, part]): unknown => [name, outline(part)]);
      const detail = JSON.stringify({ group: terms.group, partition: terms.partition, isTrusted, parts });
      record.write({ type: 'engine', event: 'state', detail });
    }
  };
}

/** Plain values of an object as they are, and of lists how long they are. */
function outline(part: unknown): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(part ?? {}) as [string, unknown][]) {
    if (Array.isArray(value)) found[name] = value.length;
    else if (value instanceof Map || value instanceof Set) found[name] = value.size;
    else if (typeof value !== 'object' && typeof value !== 'function') found[name] = value ?? null;
    else if (value !== null) found[name] = typeof value;
  }
  return found;
}

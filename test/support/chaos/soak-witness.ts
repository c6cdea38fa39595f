import type { MqEvents } from '../../../libs/redis-streams-mq/src/core/events.js';
import type { RecordFile } from './soak-record.js';

/** Writes down what the engine says about itself, and anything that would end the process; ties it to its parent. */
export function witness(events: MqEvents, record: RecordFile): void {
  const lease =
    (change: 'acquired' | 'released' | 'lost', why: (payload: never) => string) =>
    (payload: { group: string; partition: number; epoch: number }): void => {
      const { group, partition, epoch } = payload;
      record.write({ type: 'lease', change, group, partition, epoch, why: why(payload as never) });
    };
  events.on(
    'leaseAcquired',
    lease('acquired', ({ clean }: { clean: boolean }) => (clean ? 'clean' : 'unclean')),
  );
  events.on(
    'leaseReleased',
    lease('released', () => ''),
  );
  events.on(
    'leaseLost',
    lease('lost', ({ reason }: { reason: string }) => reason),
  );
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
  process.on('disconnect', () => process.exit(0));
}

import { setTimeout as sleep } from 'node:timers/promises';
import type { MqProducer } from 'nestjs-redis-streams-mq';
import { ROW_HEADER } from './ipc/call-journal.js';
import { monotonicMicros } from './monotonic-micros.js';
import type { CallLog } from './report/call-log.js';
import { RunError } from './run-error.js';
import type { Row, Scenario } from './scenario.js';

const BATCH_SIZE = 500;

/** Publishes the rows of a scenario in their order. */
export class Publisher {
  /** What kept messages from being sent, one line each. */
  readonly failures: string[] = [];
  private nextRow = 0;

  constructor(
    private readonly producer: MqProducer,
    private readonly calls: CallLog,
    /** Messages a second; `null` is as fast as possible. */
    private readonly rate: number | null,
  ) {}

  async publish(scenario: Scenario, signal: AbortSignal): Promise<void> {
    const startedAt = performance.now();
    // With a rate, small batches, so that the messages do not come in bursts.
    const size = this.rate === null ? BATCH_SIZE : Math.max(1, Math.min(BATCH_SIZE, Math.round(this.rate / 50)));
    for await (const rows of inBatches(scenario.rows(), size)) {
      signal.throwIfAborted();
      await this.sendBatch(scenario.topic, rows);
      if (this.rate === null) continue;
      const aheadMs = startedAt + (this.nextRow / this.rate) * 1000 - performance.now();
      if (aheadMs > 0) await sleep(aheadMs, undefined, { signal });
    }
  }

  /** One batch after the other: messages of one key are stored in the order in which they were sent. */
  private async sendBatch(topic: string, rows: readonly Row[]): Promise<void> {
    const firstRow = this.nextRow;
    this.nextRow += rows.length;
    const sentAt = monotonicMicros();
    rows.forEach(({ key }, i) => this.calls.sending(firstRow + i, { key, sentAt }));

    const { results, failed } = await this.producer.sendBatch(
      topic,
      rows.map(({ key, payload }, i) => ({
        payload,
        ...(key === null ? undefined : { key }),
        headers: { [ROW_HEADER]: String(firstRow + i) },
      })),
    );

    if (failed === 0) return;
    results.forEach((result, i) => {
      if (result.status === 'sent') return;
      this.calls.notSent(firstRow + i);
      this.failures.push(`message ${firstRow + i + 1}: ${messageOf(result.error)}`);
    });
    if (failed === rows.length) throw new RunError(`Publishing failed; ${this.failures.at(-1)}`);
  }
}

async function* inBatches(rows: Iterable<Row> | AsyncIterable<Row>, size: number): AsyncGenerator<Row[]> {
  let batch: Row[] = [];
  for await (const row of rows) {
    batch.push(row);
    if (batch.length === size) {
      yield batch;
      batch = [];
    }
  }
  if (batch.length > 0) yield batch;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

import { MqAdminError } from '../core/errors.js';
import type { Keys } from '../core/keys.js';
import type { Connection } from '../redis/connection.js';
import { asEntries } from '../redis/reply.js';
import { call } from '../redis/script.js';
import { dlqImport, importArgs, type ImportResult } from '../redis/scripts/dlq-import.script.js';
import type { CheckedFilter } from './dead-letter-filter.js';
import { linesOf, parseLine, toLine, type ParsedLine } from './dead-letter-lines.js';
import { parsePlace, placeText } from './dead-letter-place.js';
import type { DeadLetterReader } from './dead-letter-reader.js';

/** What an import of dead letters did. */
export interface ImportReport {
  readonly imported: number;
  /** There already, or imported before. */
  readonly present: number;
  /** Lines read, empty ones included. */
  readonly lines: number;
}

export interface DeadLetterTransferDeps {
  readonly connection: Connection;
  readonly keys: Keys;
  readonly reader: DeadLetterReader;
}

/** Entries fetched from one partition at a time. */
const FETCHED = 25;
/** Letters, and bytes of them, sent to Redis at a time. */
const BATCH = 100;
const BATCH_BYTES = 1_048_576;
const KEEP_MARKS_MS = 30 * 86_400_000;

/** Takes dead letters out of Redis as lines of text, and back. */
export class DeadLetterTransfer {
  constructor(private readonly deps: DeadLetterTransferDeps) {}

  /** What is there when it begins, in the order of time. Letters that leave meanwhile may be missing. */
  async *lines(topic: string, partitionCount: number, filter: CheckedFilter): AsyncGenerator<string, void, undefined> {
    for await (const page of this.deps.reader.heads(topic, partitionCount, filter)) {
      for (let at = 0; at < page.length; at += FETCHED) {
        const places = page.slice(at, at + FETCHED).map(({ id }) => parsePlace(id));
        const fields = await this.fetch(topic, places);
        for (const place of places) {
          const found = fields.get(placeText(place));
          if (found !== undefined) yield toLine(topic, place.partition, place.id, found);
        }
      }
    }
  }

  /**
   * @throws MqAdminError `MQ_IMPORT_MALFORMED`: the lines before it are imported; `MQ_PARTITION_MISSING`: the topic was deleted
   * meanwhile, or its data is lost
   */
  async import(
    topic: string,
    partitionCount: number,
    source: Iterable<string> | AsyncIterable<string | Uint8Array>,
    onProgress: ((report: ImportReport) => void) | undefined,
  ): Promise<ImportReport> {
    const report = { imported: 0, present: 0, lines: 0 };
    let batch: ParsedLine[] = [];
    let bytes = 0;
    const flush = async (): Promise<void> => {
      const letters = batch;
      [batch, bytes] = [[], 0];
      if (letters.length === 0) return;
      const { results, missing } = await this.store(topic, letters);
      for (const result of results) report[result]++;
      if (missing !== undefined) throw partitionMissing(topic, missing, report);
      onProgress?.({ ...report });
    };
    for await (const text of linesOf(source)) {
      report.lines++;
      if (text.trim() === '') continue;
      try {
        batch.push(parseLine(text, report.lines, topic, partitionCount));
      } catch (error) {
        await flush();
        if (!(error instanceof MqAdminError)) throw error;
        throw new MqAdminError(error.code, `${error.message}; ${report.imported} were imported before it`, {
          context: { ...error.context, imported: report.imported, present: report.present },
        });
      }
      bytes += text.length;
      if (batch.length >= BATCH || bytes >= BATCH_BYTES) await flush();
    }
    await flush();
    return report;
  }

  /** `missing`: a partition that is not there; nothing of it was stored. */
  private async store(
    topic: string,
    letters: readonly ParsedLine[],
  ): Promise<{ readonly results: readonly ImportResult[]; readonly missing: number | undefined }> {
    const { connection, keys } = this.deps;
    const replies = [...byPartition(letters)].map(async ([partition, ofPartition]) => {
      const args = importArgs(ofPartition);
      const places = keys.partition(topic, partition);
      return { partition, reply: await connection.run(call(dlqImport, places, { keepMs: KEEP_MARKS_MS }, args)) };
    });
    const stored = await Promise.all(replies);
    return {
      results: stored.flatMap(({ reply }) => (reply.status === 'ok' ? reply.results : [])),
      missing: stored.find(({ reply }) => reply.status === 'gone')?.partition,
    };
  }

  private async fetch(
    topic: string,
    places: readonly { readonly partition: number; readonly id: string }[],
  ): Promise<ReadonlyMap<string, readonly Buffer[]>> {
    const { connection, keys } = this.deps;
    const found = new Map<string, readonly Buffer[]>();
    await Promise.all(
      [...byPartition(places)].map(async ([partition, ofPartition]) => {
        const { dlq } = keys.partition(topic, partition);
        const replies = await connection.pipeline(ofPartition.map(({ id }) => ['XRANGE', dlq, id, id]));
        for (const reply of replies) {
          if (!reply.ok) throw reply.error;
          const [entry] = asEntries(reply.value);
          if (entry?.fields) found.set(placeText({ partition, id: entry.id }), entry.fields);
        }
      }),
    );
    return found;
  }
}

function partitionMissing(topic: string, partition: number, { imported, present }: ImportReport): MqAdminError {
  const text =
    `partition ${partition} of topic ${topic} is not there: the topic was deleted, or its data is lost; ` +
    `${imported} dead letters were imported before that`;
  return new MqAdminError('MQ_PARTITION_MISSING', text, { context: { topic, partition, imported, present } });
}

function byPartition<T extends { readonly partition: number }>(items: readonly T[]): Map<number, T[]> {
  const groups = new Map<number, T[]>();
  for (const item of items) {
    const known = groups.get(item.partition);
    if (known === undefined) groups.set(item.partition, [item]);
    else known.push(item);
  }
  return groups;
}

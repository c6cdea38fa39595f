import { UsageError, type JsonLinesInput } from '../cli.js';
import type { ConsumerWorkload } from '../ipc/ipc-messages.js';
import { check, type Check } from '../report/checks.js';
import type { GroupNotes } from '../report/group-table.js';
import { differences, type Totals } from '../report/key-totals.js';
import { formatCount } from '../report/table.js';
import type { Row, Scenario, Stage } from '../scenario.js';
import { readJsonLines } from './json-lines-file.js';
import { KEY_COUNTS_GROUP, NO_KEY } from './key-counts.handler.js';

/** The user's own JSON lines, counted per key. */
export class JsonLinesScenario implements Scenario {
  readonly topic: string;
  readonly groups = [KEY_COUNTS_GROUP];
  readonly workload: ConsumerWorkload;
  readonly total: number;
  readonly introduction: string;
  readonly notes: Record<string, GroupNotes> = {};

  private constructor(
    private readonly input: JsonLinesInput,
    private readonly counts: ReadonlyMap<string, number>,
  ) {
    this.topic = input.topic;
    this.workload = { kind: 'json-lines', topic: input.topic };
    this.total = [...counts.values()].reduce((sum, count) => sum + count, 0);
    const withoutKey = counts.get(NO_KEY) ?? 0;
    this.introduction = [
      `Publishing ${formatCount(this.total)} lines of ${input.file} to the topic "${input.topic}": 4 partitions,`,
      `"${input.keyField}" is the key: ${formatCount(counts.size - (withoutKey ? 1 : 0))} different ones.`,
      ...(withoutKey ? [`Lines without it: ${formatCount(withoutKey)}; they are spread evenly.`] : []),
      `Two processes handle them in the group "${KEY_COUNTS_GROUP}", which counts the messages per key.`,
    ].join('\n');
  }

  /** Reads the whole file once, so that what is wrong with it is said before anything is sent. @throws UsageError */
  static async open(input: JsonLinesInput): Promise<JsonLinesScenario> {
    const counts = new Map<string, number>();
    let firstLine: unknown;
    for await (const { key, payload } of readJsonLines(input.file, input.keyField)) {
      firstLine ??= payload;
      counts.set(key ?? NO_KEY, (counts.get(key ?? NO_KEY) ?? 0) + 1);
    }
    if (firstLine === undefined) throw new UsageError(`${input.file} has no lines.`);
    if (counts.size === 1 && counts.has(NO_KEY)) {
      const fields = Object.keys(firstLine as object).join(', ') || 'no fields';
      throw new UsageError(
        `No line of ${input.file} has a field "${input.keyField}" (--key). The first has: ${fields}.`,
      );
    }
    return new JsonLinesScenario(input, counts);
  }

  rows(): AsyncIterable<Row> {
    return readJsonLines(this.input.file, this.input.keyField);
  }

  conclude(stage: Stage): Promise<Check[]> {
    const expected = new Map<string, Totals>();
    for (const [key, count] of this.counts) expected.set(key, { count, sum: count, max: 1 });
    const wrong = differences(expected, stage.results(KEY_COUNTS_GROUP).byKey);
    return Promise.resolve([
      check(
        `the counts per key equal those of the file: ${formatCount(expected.size)} keys`,
        wrong.length === 0,
        `found ${wrong.length} that differ, among them ${wrong.slice(0, 3).join('; ')}`,
      ),
    ]);
  }
}

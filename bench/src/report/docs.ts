import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { format, resolveConfig } from 'prettier';
import { rootFolder } from '../folders.js';
import type { MeasuredRow, ScenarioResult } from '../runner.js';
import type { Machine, Versions } from './machine.js';
import { formatNumber } from './table.js';

export async function writeDocs(
  machine: Machine,
  versions: Versions,
  results: readonly ScenarioResult[],
  failed: readonly string[],
): Promise<void> {
  const file = join(rootFolder, 'docs/benchmarks.md');
  const page = benchmarksPage(machine, versions, results, failed);
  writeFileSync(file, await format(page, { ...(await resolveConfig(file)), filepath: file }));
}

export function benchmarksPage(
  machine: Machine,
  versions: Versions,
  results: readonly ScenarioResult[],
  failed: readonly string[],
): string {
  const targets = results
    .flatMap(({ rows }) => rows)
    .filter(({ row }) => row.checks !== undefined && row.checks.length > 0);
  return [
    '# Benchmarks',
    '',
    '<!-- Written by `npm run bench`; change bench/src/report/docs.ts, not this page. -->',
    '',
    INTRODUCTION,
    '',
    '## Targets and what was measured',
    '',
    '| row | target | measured | met |',
    '| --- | --- | --- | --- |',
    ...targets.map(targetLine),
    '',
    '## What is missed, and what is known of it',
    '',
    LIMITS,
    '',
    '## Machine',
    '',
    `${machine.cpu}, ${machine.cores} cores, ${machine.memoryGb} GB, ${machine.system}; load average ${machine.load} at the end of the run; ${machine.date}.`,
    '',
    Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(', '),
    '',
    '## All rows',
    '',
    ...results.flatMap(scenarioSection),
    ...failed.map((name) => `### ${name}\n\nBroke off in this run.\n`),
  ].join('\n');
}

const INTRODUCTION = `Made by \`npm run bench\`, which starts its servers itself. \`npm run bench -- --help\` shows its options.

- Each contender runs in a process of its own, with its own client library, on the same server where it uses Redis. In each round all
  of them take their turn, beginning with another one each time; the first round warms up and does not count.
- Numbers are medians of the rounds, with the lowest and highest. A ratio is the median of the ratios of each round, of values measured next to
  each other; above 1 ours is better, whatever the unit. Compare ratios, not absolute numbers: those belong to the machine and to what else it did.
- **raw** is ioredis sending the commands that the task needs and nothing else: the limit. It has no leases, no recovery and no order after a crash.
- Payloads are JSON objects of exactly 130 B, 1 KB or 16 KB; every contender serializes and parses them.
- Unless a row says otherwise, Redis keeps an append-only file with \`appendfsync everysec\` for all that use it. NATS JetStream then stores in files
  (its server writes through and syncs every two minutes: weaker), RabbitMQ has durable queues, persistent messages and publisher confirms (it syncs before
  it confirms: stronger). With durability off all of them keep messages in memory only. BullMQ, the stream library and RabbitMQ have no partitions.
- \`.cpu\` rows are processor time for each message, of the client's process and the server together: they depend less on what else the machine does.`;

/** Causes and limits, not numbers: those are in the tables. */
const LIMITS = `- **Times BullMQ.** The ratio of raw ioredis to BullMQ is a limit, and it is not much above the target: see the rows of raw. With payloads of 1 KB and
  more both spend their time on JSON and on the network, and the ratio falls for raw as well.
- **sendBatch and send of 130 B, two speeds.** As a rule ours is faster than raw ioredis (1.1 to 1.5 of it); at times it takes twice the processor time, for a round or for a whole
  run, and raw beside it does not. Size of batches and deoptimizations of code are the same then. It was seen on a shared machine; the cause is not known yet.
- **Consumption.** What is left beside raw, by \`--profile\`: garbage collection (about a fifth; each field arrives as bytes, since payloads may be bytes), the
  acknowledgement script and its arguments, decoding, and Nest's promises. With 1 KB and 16 KB the share of bytes grows.
- **Pipe and interceptor.** Nest's pipeline with an interceptor goes through RxJS; alone on a quiet machine the difference was below the target, in a full run it is above.
- **5 % failures.** A failure costs a script of its own kind and the move through the bucket, about 80 us in all; the faster success became, the more that weighs.
- **64 and 256 partitions.** Each settles by itself, and the instance buffers up to three reads of each, which the garbage collector copies. Reading
  less ahead while much is buffered was tried and did not help.
- **Small backlogs.** The first messages of a topic come while leases, groups and take-overs are looked at; of 1,000 messages that is a part.
- **Cluster.** A partition reads and settles by itself, on a connection of its own for reads, and ioredis' pipelines in Cluster cost more than commands to one server.
  Raw has neither leases nor settles by script. Connections: leases have their own to each master, so that a large batch costs nobody a lease, and there is one
  subscription; that is masters + 1 more than the target. Partitions lie on masters by the hash of their name: of topics with 24 partitions on three masters four in five have a
  master with a fifth more or less than its share, with 96 one in three, with 192 one in eight. The rows use a topic that lies evenly.`;

function targetLine({ row, medians, ratios, met }: MeasuredRow): string {
  const [own] = Object.entries(medians);
  const measured = [
    `${formatNumber(own![1])} ${row.unit}`,
    ...Object.entries(ratios).map(([entry, ratio]) => `${formatNumber(ratio)} x ${entry}`),
  ];
  const targets = (row.checks ?? []).map(({ text }) => text).join('; ');
  return `| \`${row.name}\` | ${targets} | ${measured.join(', ')} | ${met === null ? 'not judged' : met ? 'yes' : '**no**'} |`;
}

function scenarioSection({ rows, skipped, rounds }: ScenarioResult): string[] {
  const { scenario, durability } = rows[0]!;
  return [
    `### ${scenario.name}`,
    '',
    `${scenario.description} Durability: ${durability}. ${rounds} rounds.`,
    '',
    '| row | unit | contender | median | lowest | highest | ours to it |',
    '| --- | --- | --- | --- | --- | --- | --- |',
    ...rows.flatMap(({ row, summaries, ratios }) =>
      Object.entries(summaries).map(([entry, { median, min, max }]) => {
        const ratio = ratios[entry] === undefined ? '' : formatNumber(ratios[entry]);
        return `| \`${row.name}\` | ${row.unit} | ${entry} | ${formatNumber(median)} | ${formatNumber(min)} | ${formatNumber(max)} | ${ratio} |`;
      }),
    ),
    '',
    ...[...skipped].map(([entry, reason]) => `${entry} did not take part: ${reason}.\n`),
  ];
}

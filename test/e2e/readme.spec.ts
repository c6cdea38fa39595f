import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { inspect } from 'node:util';
import type { MqModuleExtras, StreamHandlerExtras } from 'nestjs-redis-streams-mq';
import { kebabName } from '../../libs/redis-streams-mq/src/core/kebab-options.js';
import { mqOptionRules } from '../../libs/redis-streams-mq/src/core/resolve-options.js';
import { jsonSerializer } from '../../libs/redis-streams-mq/src/core/serializer.js';
import { diagnosticsOf } from '../support/doc-samples.js';

const root = join(__dirname, '../..');
const libraryFolder = 'libs/redis-streams-mq';
const read = (path: string): string => readFileSync(join(root, path), 'utf8');
const readme = read('README.md');
const optionsPage = read('docs/options.md');
const adminPage = read('docs/admin.md');

/** What the pages say of one option. */
interface Documented {
  readonly kebab: string;
  /** As it is written, such as `'earliest'` in backticks. */
  readonly defaultText: string;
}

const expectedOptions: ReadonlyMap<string, Documented> = new Map([
  ['redis', { kebab: 'redis', defaultText: '`localhost:6379`' }],
  ...Object.entries(mqOptionRules).map(([name, { defaultValue }]): [string, Documented] => [
    name,
    { kebab: kebabName(name), defaultText: shownDefault(defaultValue) },
  ]),
]);

function shownDefault(value: unknown): string {
  if (value === undefined) return 'not set';
  if (value === jsonSerializer) return '`jsonSerializer`';
  return `\`${inspect(value)}\``;
}

/** Rows of the tables whose first column is headed `option`. */
function optionRows(markdown: string): readonly string[][] {
  const tables = markdown.match(/(?:^\|.*\|\n)+/gm) ?? [];
  return tables
    .map((table) => table.trim().split('\n').map(cellsOf))
    .filter(([head]) => head?.[0] === 'option')
    .flatMap(([, , ...rows]) => rows);
}

function cellsOf(row: string): string[] {
  return row
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim());
}

const unquoted = (code = ''): string => code.replaceAll('`', '');

/** In the order of their names, so that one that is there twice shows. */
const byName = (options: Iterable<readonly [string, Documented]>): readonly (readonly [string, Documented])[] =>
  [...options].toSorted(([a], [b]) => (a < b ? -1 : 1));

describe('every option is documented with its kebab-case name and its default, and no other is', () => {
  it('in the tables of the README', () => {
    const rows = optionRows(readme).map(([name, kebab, defaultText = '']): [string, Documented] => [
      unquoted(name),
      { kebab: unquoted(kebab), defaultText },
    ]);
    expect(byName(rows)).toEqual(byName(expectedOptions));
  });

  it('in the sections of docs/options.md', () => {
    const sections = [...optionsPage.matchAll(/^### `(\w+)`\n\n`([a-z-]+)`, default (.+?)(?:; not the starter's)?$/gm)];
    const documented = sections.map(([, name = '', kebab = '', defaultText = '']): [string, Documented] => [
      name,
      { kebab, defaultText },
    ]);
    expect(byName(documented)).toEqual(byName(expectedOptions));
    expect(optionsPage.match(/^### /gm)).toHaveLength(expectedOptions.size);
  });

  it('and those of a handler and of the module, in the tables of docs/options.md', () => {
    // The compiler refuses a name that is missing here, and one that does not exist.
    const ofHandler = {
      batchCount: true,
      pollTimeoutMs: true,
      retryMaxAttempts: true,
      retryBaseBackoffMs: true,
      retryMaxBackoffMs: true,
      handlerTimeoutMs: true,
      timeoutMs: true,
      retry: true,
      rateLimit: true,
      batch: true,
      ttlMs: true,
      startFrom: true,
      partitionModulo: true,
      partitionRemainder: true,
      concurrency: true,
      ordering: true,
      retryOrdering: true,
      maxHeldPerPartition: true,
      instance: true,
      autoStart: true,
      schema: true,
    } satisfies Record<keyof StreamHandlerExtras, true>;
    const ofModule = {
      name: true,
      isGlobal: true,
      endpoints: true,
      globalEnhancers: true,
      registry: true,
    } satisfies Record<keyof MqModuleExtras, true>;
    const documented = optionRows(optionsPage).map(([name]) => unquoted(name));
    expect(documented).toEqual([...Object.keys(ofHandler), ...Object.keys(ofModule)]);
  });
});

/** What a sample without imports of its own stands in. */
const sampleContext = `
import { readFileSync } from 'node:fs';
import { Injectable, Module } from '@nestjs/common';
import {
  DeadLetter, DeadLetterQueue, InjectMqProducer, type MqAdmin, MqAdminError, MqProducer, type MqQueueOptions, RedisStreamsMqModule, RetryLater,
  type ResetFailure, type StreamContext, StreamHandler,
} from 'nestjs-redis-streams-mq';
interface Order { id: number; customer: string; total: number }
interface Transaction { query(sql: string, values: unknown[]): Promise<{ rowCount: number }> }
declare class Database { transaction(work: (tx: Transaction) => Promise<void>): Promise<void> }
declare class Bank { charge(order: Order, options: { signal: AbortSignal }): Promise<{ status: number }> }
declare class ConfigModule {}
declare class ConfigService { getOrThrow<T>(name: string): T }
declare function load(yaml: string): unknown;
declare const admin: MqAdmin;
declare const eventId: string;
declare function migrateDatabase(): Promise<void>;
`;

function samplesOf(markdown: string): string[] {
  const samples = [...markdown.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code = '']) => code);
  return samples.map((code) => (code.startsWith('import ') ? code : `${sampleContext}${code}\nexport {};\n`));
}

describe('the samples', () => {
  it('compile, the application of the README on its own', () => {
    const pages = [readme, optionsPage, adminPage, read('docs/ordering.md')];
    const samples = pages.flatMap(samplesOf);
    expect(samples[0]).toMatch(/^import .*NestFactory\.create\(AppModule\)/s);
    expect(samples.length).toBeGreaterThan(5);
    expect(diagnosticsOf(samples)).toEqual([]);
  }, 120_000);

  it('are refused when they are wrong', () => {
    const wrong = "import { MqProducer } from 'nestjs-redis-streams-mq';\nexport const x: number = MqProducer;\n";
    expect(diagnosticsOf([wrong])).toEqual([expect.stringContaining('TS2322')]);
  }, 120_000);
});

describe('the package', () => {
  it('has the README and the licence of the repository, with links that fit its folder', () => {
    const moved = readme.replaceAll(/\]\((?!https?:|#)/g, '](../../').replace('](../../LICENSE)', '](LICENSE)');
    expect(read(`${libraryFolder}/README.md`)).toBe(moved);
    expect(read(`${libraryFolder}/LICENSE`)).toBe(read('LICENSE'));
  });

  it.each([
    'README.md',
    `${libraryFolder}/README.md`,
    'docs/options.md',
    'docs/ordering.md',
    'docs/admin.md',
    'docs/dead-letters.md',
    'docs/sizing.md',
    'CHANGELOG.md',
  ])('has no link in %s that leads nowhere', (page) => {
    const text = read(page);
    const targets = [...text.matchAll(/\]\((?!https?:)([^)]+)\)/g)].map(([, target = '']) => target);
    expect(targets.filter((target) => !leadsSomewhere(page, target))).toEqual([]);
  });
});

function leadsSomewhere(page: string, target: string): boolean {
  const [path = '', anchor] = target.split('#');
  const file = path === '' ? page : join(dirname(page), path);
  if (!existsSync(join(root, file))) return false;
  if (anchor === undefined) return true;
  const headings = [...read(file).matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) => slugOf(heading));
  return headings.includes(anchor);
}

/** As GitHub makes an anchor of a heading. */
function slugOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
}

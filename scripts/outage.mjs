// Runs the demo on a Redis of its own, stops that for ten seconds in the middle (SIGSTOP: connections stay open and nothing
// answers), and prints what /health and /metrics of a consumer and of the publisher say before, during and after.
// `npm run outage`; docs/operating.md shows a run.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { findServer } from './find-server.mjs';
import { ServerProcess } from './server-process.mjs';

const RATE = 500;
const OUTAGE_MS = 10_000;
const P = 'redis_streaming_mq_';

const redis = await ServerProcess.start(findServer(), { args: ['--appendonly', 'yes'] });
const demo = spawn(
  process.execPath,
  [join(import.meta.dirname, '../apps/demo/dist/main.js'), '--exit', '--rate', String(RATE), '--port', '0'],
  { env: { ...process.env, REDIS_URL: redis.url }, stdio: ['ignore', 'pipe', 'inherit'] },
);
const exited = once(demo, 'exit');
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => demo.kill('SIGTERM'));

try {
  const output = [];
  const urls = await new Promise((resolve, reject) => {
    createInterface(demo.stdout).on('line', (line) => {
      output.push(line);
      const served = /^Serving \/health and \/metrics: (.*)$/.exec(line);
      if (served) resolve(served[1].split(' '));
    });
    void exited.then(() => reject(new Error(`the demo ended:\n${output.join('\n')}`)));
  });
  const startedAt = performance.now();
  console.log(header());
  const watch = async (phase, untilMs) => {
    while (performance.now() - startedAt < untilMs) {
      console.log(row(phase, performance.now() - startedAt, await Promise.all(urls.map(look))));
      await sleep(2_000 - ((performance.now() - startedAt) % 2_000));
    }
  };
  await watch('before', 10_000);
  const reporter = await reporterOf(urls);
  const before = await exposition(reporter);
  redis.pause();
  const stoppedAt = performance.now();
  const resumed = sleep(OUTAGE_MS).then(() => redis.resume());
  await watch('stopped', performance.now() - startedAt + OUTAGE_MS - 1_500);
  const during = {
    health: await health(urls[1]),
    live: await health(urls[1], '/live'),
    text: await exposition(reporter),
  };
  await resumed;
  console.log(`redis answers again after ${Math.round(performance.now() - stoppedAt)} ms`);
  await watch('after', performance.now() - startedAt + 16_000);
  const { redisStreamsMq } = during.health.body.details;
  print(
    'GET /health of a consumer while Redis stood still',
    `${during.health.status} ${JSON.stringify(redisStreamsMq, null, 2)}`,
  );
  print('GET /health/live of it', `${during.live.status} ${JSON.stringify(during.live.body)}`);
  print('/metrics of the reporter before', selected(before));
  print('/metrics of the reporter while Redis stood still', selected(during.text));
  print('/metrics of the reporter after', selected(await exposition(reporter)));
  const [code] = await exited;
  print(
    'The demo says',
    output
      .slice(output.findIndex((line) => line.startsWith('Serving')) + 1)
      .join('\n')
      .trim(),
  );
  process.exitCode = code ?? 1;
} finally {
  if (demo.exitCode === null) demo.kill('SIGTERM');
  await exited;
  await redis.stop();
}

async function health(url, path = '') {
  const response = await fetch(`${url}/health${path}`, { signal: AbortSignal.timeout(5_000) });
  return { status: response.status, body: await response.json() };
}

async function reporterOf(urls) {
  for (const url of urls) if (value(await exposition(url), 'reporter') === '1') return url;
  return urls[0];
}

async function exposition(url) {
  return (await fetch(`${url}/metrics`, { signal: AbortSignal.timeout(5_000) })).text();
}

async function look(url) {
  const askedAt = performance.now();
  const text = await exposition(url);
  const scrapeMs = performance.now() - askedAt;
  const [ready, live] = [await health(url), await health(url, '/live')];
  const { reasons = [] } = Object.values(ready.body.details)[0];
  return { ready: ready.status, live: live.status, reasons, text, scrapeMs };
}

/** The sum over all series of that name; `-` where there is none. */
function value(text, name, digits = 0) {
  const found = [...text.matchAll(new RegExp(`^${P}${name}(?:\\{[^}]*\\})? (\\S+)$`, 'gm'))].map(([, number]) =>
    Number(number),
  );
  return found.length === 0 ? '-' : found.reduce((sum, one) => sum + one, 0).toFixed(digits);
}

function header() {
  return '   s  Redis    ready        live         owned  produced   acked    lag  sample age  mover age  slowest scrape';
}

function row(phase, ms, looks) {
  const texts = looks.map(({ text }) => text);
  const over = (name) => texts.map((text) => value(text, name));
  const sum = (name) =>
    over(name).reduce((total, one) => (one === '-' ? total : (total === '-' ? 0 : total) + Number(one)), '-');
  const cells = [
    (ms / 1000).toFixed(0).padStart(4),
    phase.padEnd(8),
    looks
      .map(({ ready }) => ready)
      .join(' ')
      .padEnd(12),
    looks
      .map(({ live }) => live)
      .join(' ')
      .padEnd(12),
    String(sum('leased_partitions')).padStart(5),
    String(sum('produced_total')).padStart(9),
    String(sum('acked_total')).padStart(7),
    String(sum('lag')).padStart(6),
    `${sum('sample_age_ms')} ms`.padStart(11),
    `${Math.max(
      ...over('mover_age_ms')
        .filter((one) => one !== '-')
        .map(Number),
    )} ms`.padStart(10),
    `${Math.max(...looks.map(({ scrapeMs }) => scrapeMs)).toFixed(0)} ms`.padStart(14),
  ];
  const reasons = [...new Set(looks.flatMap((each) => each.reasons))];
  return cells.join('  ') + (reasons.length > 0 ? `\n      ${reasons.join('; ')}` : '');
}

/** What moved in the outage, of one process. */
function selected(text) {
  const names = [
    'reporter',
    'leased_partitions',
    'inflight',
    'mover_age_ms',
    'sample_age_ms',
    'lag',
    'lag_age_ms',
    'pending',
    'unowned_partitions',
    'faults_total',
    'lease_lost_total',
    'reader_restarts_total',
  ];
  const lines = text.split('\n').filter((line) => names.some((name) => line.startsWith(`${P}${name}{`)));
  return lines.map((line) => line.replace(/\d+\.\d+$/, (number) => Math.round(number))).join('\n');
}

function print(title, text) {
  console.log(`\n== ${title}\n${text}`);
}

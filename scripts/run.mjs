// Does one job with all it needs: `node scripts/run.mjs jest[:project,...] [args]`, and so for `demo`, `outage`, `torture`, `bench`,
// `sizing` and `package`.
import './setup.mjs';
import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { join } from 'node:path';
import { findServer } from './find-server.mjs';
import { ensureRedis, hasDocker, howToGetRedis, installServer } from './redis.mjs';

const root = join(import.meta.dirname, '..');
const installed = (file) => join(root, 'node_modules', file);

/** Of Node, for programs in TypeScript that are not built. */
const fromSource = ['--conditions=@redis-streams-mq/source', '--import', '@swc-node/register/esm-register'];
const jobs = { jest, demo, outage, torture, bench, sizing, package: testPackage };
const [what = '', ...args] = process.argv.slice(2);
const [job, detail] = what.split(':');

/** @type {import('node:child_process').ChildProcess | undefined} */
let child;
/** What was started for the job, and goes after it. */
let redis;

for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, onSignal);
if (process.env.npm_lifecycle_event) endWithNpm();

try {
  if (!Object.hasOwn(jobs, job)) throw new Error(`usage: node scripts/run.mjs ${Object.keys(jobs).join('|')} [args]`);
  process.exitCode = await jobs[job](args);
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await redis?.stop();
}

/** Each test file starts a Redis of its own, with the server on the PATH or in Docker; else all share REDIS_URL. */
async function jest(jestArgs) {
  const projects = (detail ?? 'unit,integration,e2e').split(',');
  const env = {};
  if (projects.some((project) => project !== 'unit') && !findServer()) {
    if (process.env.REDIS_URL) {
      redis = await ensureRedis({ log: console.log });
      env.MQ_TEST_REDIS_URL = redis.url;
    } else if (!hasDocker() && !installServer()) throw new Error(howToGetRedis());
  }
  // Last, because this option takes every word that follows.
  const select = jestArgs.includes('--selectProjects') ? [] : ['--selectProjects', ...projects];
  return run(installed('jest/bin/jest.js'), [...jestArgs, ...select], env);
}

async function demo(demoArgs) {
  redis = await ensureRedis({ log: console.log });
  const built = await run(installed('typescript/bin/tsc'), ['-b', join(root, 'tsconfig.build.json')]);
  if (built !== 0) return built;
  return run(join(root, 'apps/demo/dist/main.js'), demoArgs, { REDIS_URL: redis.url });
}

/** Arithmetic alone, unless it is asked to measure: then it starts a server of its own. */
async function sizing(sizingArgs) {
  if (sizingArgs.includes('--measure') && !findServer()) installServer();
  return run(join(root, 'scripts/sizing/main.ts'), sizingArgs, {}, fromSource);
}

/** It starts servers of its own, and so needs one that can be started. */
async function torture(tortureArgs) {
  const server = findServer() ?? (installServer() ? findServer() : undefined);
  if (!server) throw new Error(howToGetRedis());
  return run(join(root, 'test/torture/main.ts'), tortureArgs, { MQ_REDIS_SERVER: server }, fromSource);
}

/** The demo with a Redis of its own that stands still in the middle; says what the probes and metrics said meanwhile. */
async function outage(outageArgs) {
  const server = findServer() ?? (installServer() ? findServer() : undefined);
  if (!server) throw new Error(howToGetRedis());
  const built = await run(installed('typescript/bin/tsc'), ['-b', join(root, 'tsconfig.build.json')]);
  if (built !== 0) return built;
  return run(join(root, 'scripts/outage.mjs'), outageArgs, { MQ_REDIS_SERVER: server });
}

/** Builds the library and the bench; each of its runs starts servers of its own. */
async function bench(benchArgs) {
  const server = findServer() ?? (installServer() ? findServer() : undefined);
  if (!server) throw new Error(howToGetRedis());
  const projects = ['tsconfig.build.json', 'bench/tsconfig.build.json'].map((file) => join(root, file));
  const built = await run(installed('typescript/bin/tsc'), ['-b', ...projects]);
  if (built !== 0) return built;
  return run(join(root, 'bench/dist/bench/src/main.js'), benchArgs, { MQ_REDIS_SERVER: server });
}

/** The packed library, installed as users do. */
async function testPackage(packageArgs) {
  redis = await ensureRedis({ log: console.log });
  return run(join(root, 'scripts/package/main.mjs'), packageArgs, { MQ_PACKAGE_REDIS_URL: redis.url });
}

/** Runs a script of Node's and resolves with its exit code. */
function run(script, scriptArgs, env = {}, nodeArgs = []) {
  child = spawn(process.execPath, [...nodeArgs, script, ...scriptArgs], {
    cwd: root,
    env: { ...process.env, ...env },
    stdio: 'inherit',
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code, signal) => {
      child = undefined;
      resolve(code ?? 128 + constants.signals[signal]);
    });
  });
}

function onSignal(signal) {
  if (!child) process.exit(128 + constants.signals[signal]);
  // Ctrl-C in a terminal reaches the job by itself, and a second one would cut its shutdown short.
  if (signal !== 'SIGINT' || !process.stdin.isTTY) child.kill(signal);
}

/** A SIGTERM to npm ends the shell between npm and this process, and the shell tells nobody: look who the parent is. */
function endWithNpm() {
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    onSignal('SIGTERM');
  }, 200);
  timer.unref();
}

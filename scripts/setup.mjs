// Installs the dependencies when they are missing or do not fit package-lock.json. Runs before anything is installed and
// is called inside the other scripts (npm skips pre-scripts under ignore-scripts), so: Node's own modules only.
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const lock = join(root, '.setup-lock');
const lockOwner = join(lock, 'pid');
const giveUpAfterMs = 15 * 60_000;

try {
  checkNode();
  if (!isInstalled()) await withLock(async () => isInstalled() || install());
} catch (error) {
  console.error(`Set-up failed: ${error.message}`);
  process.exit(1);
}

function checkNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major > 20 || (major === 20 && minor >= 19)) return;
  throw new Error(`Node 20.19 or later is needed, and this is ${process.version}.`);
}

/** Compares what npm says it has put into node_modules with what the lock file asks for. */
function isInstalled() {
  const installed = packagesOf('node_modules/.package-lock.json');
  if (!installed) return false;
  return Object.entries(packagesOf('package-lock.json')).every(([path, wanted]) => {
    if (!path.includes('node_modules/')) return true;
    const found = installed[path];
    return found ? found.version === wanted.version && found.link === wanted.link : isForElsewhere(wanted);
  });
}

function packagesOf(file) {
  try {
    return JSON.parse(readFileSync(join(root, file), 'utf8')).packages;
  } catch (error) {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Optional packages of other systems are not installed; those of this one must be, or the folder came from elsewhere. */
function isForElsewhere({ optional, os, cpu, libc }) {
  const isForHere = os?.includes(process.platform) && cpu?.includes(process.arch) && !libc;
  return optional === true && !isForHere;
}

/** One install at a time: mkdir is atomic, and a lock whose owner has died is taken away. */
async function withLock(work) {
  const deadline = Date.now() + giveUpAfterMs;
  while (!tryLock()) {
    if (isAbandoned()) rmSync(lock, { recursive: true, force: true });
    else if (Date.now() > deadline) throw new Error(`another set-up holds ${lock}; remove it if none is running.`);
    else await sleep(300);
  }
  try {
    await work();
  } finally {
    rmSync(lock, { recursive: true, force: true });
  }
}

function tryLock() {
  try {
    mkdirSync(lock);
  } catch (error) {
    if (error.code === 'EEXIST') return false;
    throw error;
  }
  writeFileSync(lockOwner, String(process.pid));
  return true;
}

function isAbandoned() {
  try {
    process.kill(Number(readFileSync(lockOwner, 'utf8')) || process.pid, 0);
    return false;
  } catch (error) {
    if (error.code === 'ESRCH') return true;
    if (error.code !== 'ENOENT') return false;
    // Made a moment ago and not signed yet, or its owner died in between.
    const lockStat = statSync(lock, { throwIfNoEntry: false });
    return lockStat !== undefined && Date.now() - lockStat.mtimeMs > 10_000;
  }
}

async function install() {
  console.log('Installing the dependencies (npm ci) ...');
  const npm = process.env.npm_execpath ? [process.execPath, process.env.npm_execpath] : ['npm'];
  const args = [...npm.slice(1), 'ci', '--include=dev', '--no-audit', '--no-fund', '--loglevel=error'];
  const child = spawn(npm[0], args, { cwd: root, env: cleanEnv(), stdio: ['ignore', 'inherit', 'inherit'] });
  const forward = (signal) => child.kill(signal);
  process.on('SIGINT', forward).on('SIGTERM', forward);
  const problem = await new Promise((resolve) => {
    child.once('error', (error) => resolve(`could not be started (${error.message})`));
    child.once('exit', (code, signal) => resolve(code === 0 ? undefined : `ended with ${signal ?? `code ${code}`}`));
  });
  process.off('SIGINT', forward).off('SIGTERM', forward);
  if (problem) throw new Error(`npm ci ${problem}; its own message is above.`);
}

/** Options of the npm that runs this script (workspace, omit ...) arrive as variables and would change what is installed. */
function cleanEnv() {
  const kept = /^npm_config_(cache|registry|userconfig|globalconfig|cafile|prefer_offline|offline)$/i;
  return Object.fromEntries(
    Object.entries(process.env).filter(([name]) => kept.test(name) || !/^npm_(config|package|lifecycle)_/i.test(name)),
  );
}

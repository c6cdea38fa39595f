import { spawnSync } from 'node:child_process';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findServer } from './find-server.mjs';
import { ping } from './ping.mjs';
import { ServerProcess } from './server-process.mjs';

const image = 'redis:7.4';

/**
 * @typedef {object} Redis
 * @property {string} url
 * @property {'REDIS_URL' | 'redis-server' | 'valkey-server' | 'docker' | 'apt'} via where it comes from
 * @property {() => Promise<void>} stop ends what was started for it; does nothing to a server of the user's
 */

/**
 * Finds or starts a Redis: the one that REDIS_URL names, else a server on the PATH, else Docker, else the Debian package.
 * @param {{ log: (line: string) => void }} options
 * @returns {Promise<Redis>}
 */
export async function ensureRedis({ log }) {
  if (process.env.REDIS_URL) return useGiven(process.env.REDIS_URL);
  const server = findServer();
  if (server) return startServer(server, basename(server), log);
  if (hasDocker()) return startContainer(log);
  if (installServer()) return startServer(findServer(), 'apt', log);
  throw new Error(howToGetRedis());
}

/** Whether an engine answers; the client alone may be there without one. */
export const hasDocker = () => spawnSync('docker', ['info'], { stdio: 'ignore', timeout: 10_000 }).status === 0;

/** Installs redis-server where that is possible without asking; says whether it is there now. */
export function installServer() {
  if (process.platform !== 'linux' || process.getuid() !== 0) return false;
  const script = join(import.meta.dirname, 'install-redis.mjs');
  return spawnSync(process.execPath, [script], { stdio: ['ignore', 'inherit', 'inherit'] }).status === 0;
}

export function howToGetRedis() {
  const install = {
    darwin: 'brew install redis',
    win32: 'start Docker Desktop, or use WSL (wsl --install) and install redis-server there',
    linux: 'apt-get install redis-server (Debian, Ubuntu) or dnf install valkey (Fedora), or start Docker',
  };
  return [
    'This needs a Redis 6.2 or later, or a Valkey, and there is none: no REDIS_URL, no redis-server or valkey-server on',
    `the PATH, and no Docker engine that answers. On this system: ${install[process.platform] ?? 'install redis-server'}.`,
    'Or set REDIS_URL=redis://host:port to use a running one.',
  ].join('\n');
}

async function useGiven(url) {
  const answer = await ping(url, 3000).catch((error) => error.message);
  const shown = url.replace(/\/\/.*@/, '//***@');
  if (answer !== '+PONG') throw new Error(`REDIS_URL is ${shown}, and PING there gives: ${answer}`);
  return { url, via: 'REDIS_URL', stop: async () => {} };
}

async function startServer(binary, via, log) {
  const server = await ServerProcess.start(binary, { args: ['--appendonly', 'no'] });
  log(`Started ${binary} on ${server.url} (its data goes when this ends).`);
  return { url: server.url, via, stop: () => server.stop() };
}

async function startContainer(log) {
  log(`Starting ${image} in Docker ...`);
  const run = docker('run', '--rm', '-d', '-p', '127.0.0.1::6379', image, '--save', '', '--appendonly', 'no');
  if (run.status !== 0) throw new Error(`docker run ${image} failed`);
  const id = run.stdout.trim();
  const remove = () => void docker('rm', '-f', id);
  process.on('exit', remove);
  const stop = async () => {
    process.off('exit', remove);
    remove();
  };
  const url = `redis://${docker('port', id, '6379/tcp').stdout.trim().split('\n')[0]}`;
  const deadline = Date.now() + 30_000;
  while ((await ping(url).catch(() => '')) !== '+PONG') {
    if (Date.now() > deadline) throw new Error(`Redis in Docker does not answer on ${url}`);
    await sleep(50);
  }
  log(`Redis is on ${url} (Docker; its data goes when this ends).`);
  return { url, via: 'docker', stop };
}

const docker = (...args) => spawnSync('docker', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism, cpus, loadavg, release, totalmem, type } from 'node:os';
import { findServer } from '../../../scripts/find-server.mjs';
import { findProgram } from '../servers/brokers.js';

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGb: number;
  readonly system: string;
  /** Load average over the last five minutes, at the end of the run. */
  readonly load: number;
  readonly date: string;
}

export type Versions = Readonly<Record<string, string>>;

const PACKAGES = [
  'ioredis',
  '@nestjs/core',
  'bullmq',
  '@nats-io/jetstream',
  'amqplib',
  'redis-streams-broker',
  'nestjs-redis-streams-mq',
];

export function describeMachine(): Machine {
  return {
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: availableParallelism(),
    memoryGb: Math.round(totalmem() / 1e9),
    // What is behind the number names a distribution, or whoever built the kernel.
    system: `${type()} ${release().replace(/-.*/, '')}`,
    load: Number(loadavg()[1]!.toFixed(1)),
    date: new Date().toISOString().slice(0, 10),
  };
}

export function findVersions(): Versions {
  const versions: Record<string, string> = { node: process.version.slice(1) };
  const server = findServer();
  if (server !== undefined) versions.redis = versionOf(server, '--version');
  const nats = findProgram('nats-server');
  if (nats !== undefined) versions['nats-server'] = versionOf(nats, '--version');
  if (findProgram('rabbitmq-server') !== undefined) versions['rabbitmq-server'] = rabbitmqVersion();
  for (const name of PACKAGES) versions[name] = packageVersion(name);
  return versions;
}

function versionOf(program: string, flag: string): string {
  const { stdout } = spawnSync(program, [flag], { encoding: 'utf8' });
  return /\d+\.\d+\.\d+/.exec(stdout)?.[0] ?? 'unknown';
}

/** Its own tools start an Erlang machine to tell; Debian knows. */
function rabbitmqVersion(): string {
  const { stdout } = spawnSync('dpkg-query', ['-W', '-f=${Version}', 'rabbitmq-server'], { encoding: 'utf8' });
  return stdout || 'unknown';
}

/** From where the package was found: many do not export their package.json. */
function packageVersion(name: string): string {
  for (const folder of createRequire(import.meta.url).resolve.paths(name) ?? []) {
    try {
      return (JSON.parse(readFileSync(`${folder}/${name}/package.json`, 'utf8')) as { version: string }).version;
    } catch {
      continue;
    }
  }
  return 'unknown';
}

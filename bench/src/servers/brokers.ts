import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { connect } from 'node:net';
import { delimiter, join } from 'node:path';
import { waitFor } from '../../../test/support/wait-for.js';
import { MissingServerError } from './running-server.js';

const READY_MS = 120_000;
const STOP_MS = 20_000;

/** Also where Debian keeps what is for root. */
export function findProgram(name: string): string | undefined {
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/usr/lib/rabbitmq/bin'];
  return folders
    .filter(Boolean)
    .map((folder) => join(folder, name))
    .find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Starts a broker in a process group of its own and resolves when its port takes connections. One that does not start is missing. */
export async function startBroker(
  file: string,
  args: readonly string[],
  port: number,
  env: NodeJS.ProcessEnv = {},
): Promise<ChildProcess> {
  const child = spawn(file, args, {
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...env },
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text) => (output = (output + String(text)).slice(-4000)));
  const abandon = (): void => killGroup(child, 'SIGKILL');
  process.on('exit', abandon);
  child.on('exit', () => process.off('exit', abandon));
  try {
    await waitFor(() => child.exitCode !== null || takesConnections(port), {
      timeoutMs: READY_MS,
      describe: `${file} to take connections`,
    });
    if (child.exitCode !== null) throw new Error(`${file} ended with code ${child.exitCode}`);
  } catch (error) {
    killGroup(child, 'SIGKILL');
    throw new MissingServerError(`${file} did not start: ${(error as Error).message}\n${output}`, { cause: error });
  }
  return child;
}

export async function stopBroker(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  killGroup(child, 'SIGTERM');
  const timer = setTimeout(() => killGroup(child, 'SIGKILL'), STOP_MS);
  await exited;
  clearTimeout(timer);
  killGroup(child, 'SIGKILL');
}

function killGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  try {
    if (pid !== undefined) process.kill(-pid, signal);
  } catch {
    // It has ended.
  }
}

function takesConnections(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

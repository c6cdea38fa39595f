import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ping } from './ping.mjs';

/** Clusters add this to the port for their bus, so that both must be free. */
const BUS_OFFSET = 10_000;

/** @type {boolean | undefined} */
let canTieToParent;

/** @type {Set<ServerProcess>} */
const unstopped = new Set();
process.on('exit', () => unstopped.forEach((server) => server.abandon()));

/**
 * A redis-server (or valkey-server) of our own on a free port of the loopback, with its data in a temporary folder that
 * goes when it is stopped. It runs in a process group of its own, so that Ctrl-C reaches the application and not its
 * Redis; on Linux the kernel ends it when this process dies in whatever way.
 */
export class ServerProcess {
  /** @type {import('node:child_process').ChildProcess | undefined} */
  #child;
  #output = '';
  #command;

  /** Use `ServerProcess.start`. */
  constructor(binary, { args = [], config }, port) {
    /** @type {number} */
    this.port = port;
    this.url = `redis://127.0.0.1:${port}`;
    this.dir = mkdtempSync(join(tmpdir(), 'mq-redis-'));
    unstopped.add(this);
    const configFile = join(this.dir, 'redis.conf');
    writeFileSync(configFile, config ?? '');
    const defaults = ['--bind', '127.0.0.1', '--port', String(port), '--dir', this.dir, '--save', ''];
    this.#command = [...diesWithParent(), binary, configFile, ...defaults, ...args];
  }

  /**
   * Resolves when the server answers PING. By default it saves nothing.
   * @param {string} binary path of redis-server or valkey-server
   * @param {{ args?: string[], config?: string }} [options] `args` come after the defaults, and so win; `config` is the
   *   text of a configuration file
   * @returns {Promise<ServerProcess>}
   */
  static async start(binary, options = {}) {
    for (let attempt = 1; ; attempt++) {
      const server = new ServerProcess(binary, options, await freePort());
      try {
        await server.launch();
        return server;
      } catch (error) {
        await server.stop();
        // Someone else may have taken the port between the look and the start.
        if (attempt === 3 || !/in use/i.test(error.message)) throw error;
      }
    }
  }

  /** @returns {number} */
  get pid() {
    if (!this.#child?.pid) throw new Error(`the server on port ${this.port} is not running`);
    return this.#child.pid;
  }

  get isRunning() {
    return this.#child !== undefined;
  }

  /** Ends the process with a signal and resolves when it is gone. The data folder stays. */
  async kill(/** @type {NodeJS.Signals} */ signal = 'SIGKILL') {
    const child = this.#child;
    if (!child) return;
    const exited = once(child, 'exit');
    child.kill(signal);
    child.kill('SIGCONT');
    await exited;
  }

  /** Stops the process where it stands (SIGSTOP): connections stay open and nothing answers. */
  pause() {
    process.kill(this.pid, 'SIGSTOP');
  }

  resume() {
    process.kill(this.pid, 'SIGCONT');
  }

  /** Starts again on the same port and data folder; kills first what still runs. */
  async restart() {
    await this.kill();
    await this.launch();
  }

  /** Ends the process and removes its data. May be called twice. */
  async stop() {
    await this.kill();
    this.#forget();
  }

  /** The same without waiting, for the end of this process. */
  abandon() {
    this.#child?.kill('SIGKILL');
    this.#forget();
  }

  async launch() {
    const [file, ...args] = this.#command;
    const child = spawn(file, args, { detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child = child;
    this.#output = '';
    const gone = () => (this.#child = undefined);
    child.on('error', gone).on('exit', gone);
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (text) => (this.#output = (this.#output + text).slice(-4000)));
    }
    await this.#untilReady();
  }

  #forget() {
    unstopped.delete(this);
    rmSync(this.dir, { recursive: true, force: true });
  }

  async #untilReady() {
    const deadline = Date.now() + 15_000;
    let answer = '';
    while (this.#child && Date.now() < deadline) {
      answer = await ping(this.url, 500).catch((error) => error.message);
      if (/^(\+PONG|-NOAUTH)/.test(answer)) return;
      await sleep(10);
    }
    throw new Error(`Redis did not become ready on port ${this.port} (${answer || 'it ended'}):\n${this.#output}`);
  }
}

/** Below the range from which the system takes ports for outgoing connections and for `listen(0)`. */
export async function freePort() {
  for (;;) {
    const port = 15_000 + Math.floor(Math.random() * 15_000);
    if ((await isFree(port)) && (await isFree(port + BUS_OFFSET))) return port;
  }
}

function isFree(port) {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(false));
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
  });
}

/** Words that go before a command so that Linux ends it with this process; none where there is no such tool. */
function diesWithParent() {
  const wrapper = ['setpriv', '--pdeathsig', 'KILL'];
  canTieToParent ??= process.platform === 'linux' && spawnSync(wrapper[0], [...wrapper.slice(1), 'true']).status === 0;
  return canTieToParent ? wrapper : [];
}

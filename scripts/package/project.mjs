import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');
const tsc = join(root, 'node_modules/typescript/bin/tsc');
const sources = join(root, 'test/package');

/** What ran, with its output. */
export class Failed extends Error {}

/**
 * Runs a script of Node's, or npm, to its end.
 * @param {string[]} args
 * @param {{ cwd: string, env?: Record<string, string>, timeoutMs?: number, mayFail?: boolean }} options
 * @returns {Promise<{ code: number | null, output: string }>}
 */
export async function run([file, ...args], { cwd, env = {}, timeoutMs = 120_000, mayFail = false }) {
  const child = spawn(file, args, { cwd, env: { ...cleanEnv(), ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (output += text));
  const timer = setTimeout(() => child.kill('SIGKILL'), timeoutMs);
  const code = await new Promise((resolve, reject) => child.once('error', reject).once('close', resolve));
  clearTimeout(timer);
  if (code === 0 || mayFail) return { code, output };
  const how = code === null ? `did not end within ${timeoutMs} ms` : `ended with ${code}`;
  throw new Failed(`${[file, ...args].join(' ')} in ${cwd} ${how}:\n${output.slice(-6_000)}`);
}

/** Options of the npm that runs this script arrive as variables and would change what is installed. */
function cleanEnv() {
  const kept = /^npm_config_(cache|registry|userconfig|globalconfig|cafile|prefer_offline|offline)$/i;
  return Object.fromEntries(
    Object.entries(process.env).filter(([name]) => kept.test(name) || !/^npm_(config|package|lifecycle)_/i.test(name)),
  );
}

export function npm(...args) {
  return process.env.npm_execpath ? [process.execPath, process.env.npm_execpath, ...args] : ['npm', ...args];
}

/** A folder with the package and its peers in node_modules; the projects that use them are folders in it. */
export class Installation {
  constructor(folder) {
    this.folder = folder;
  }

  /** @param {Record<string, string>} dependencies besides the tarball */
  static async make(folder, tarball, dependencies) {
    mkdirSync(folder, { recursive: true });
    const all = { 'nestjs-redis-streams-mq': `file:${tarball}`, ...dependencies };
    writeJson(join(folder, 'package.json'), { name: 'installation', private: true, dependencies: all });
    const quick = ['--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'];
    await run(npm('install', ...quick), { cwd: folder, timeoutMs: 300_000 });
    return new Installation(folder);
  }

  /** Packages in node_modules, of the project's own and of others. */
  packages() {
    const lock = JSON.parse(readFileSync(join(this.folder, 'node_modules/.package-lock.json'), 'utf8'));
    return Object.keys(lock.packages);
  }

  /**
   * A project of its own in this folder, with these files of test/package.
   * @param {'module' | 'commonjs'} type
   */
  project(name, type, files) {
    const folder = join(this.folder, name);
    mkdirSync(folder, { recursive: true });
    for (const file of files) cpSync(join(sources, file), join(folder, file), { recursive: true });
    writeJson(join(folder, 'package.json'), { name, private: true, type });
    return new Project(folder);
  }
}

export class Project {
  constructor(folder) {
    this.folder = folder;
  }

  /** Compiles with the declarations of everything that is imported checked too; returns what the compiler says. */
  async compile(options = {}, { mayFail = false } = {}) {
    const compilerOptions = {
      target: 'ES2023',
      module: 'nodenext',
      moduleResolution: 'nodenext',
      strict: true,
      skipLibCheck: false,
      experimentalDecorators: true,
      emitDecoratorMetadata: true,
      types: ['node'],
      rootDir: '.',
      outDir: 'dist',
      noEmitOnError: true,
      ...options,
    };
    writeJson(join(this.folder, 'tsconfig.json'), { compilerOptions, include: ['**/*.ts'], exclude: ['dist'] });
    const { output } = await run([process.execPath, tsc, '-p', this.folder, '--pretty', 'false'], {
      cwd: this.folder,
      mayFail,
    });
    return output;
  }

  node(script, { env, timeoutMs = 60_000 } = {}) {
    return run([process.execPath, script], { cwd: this.folder, env, timeoutMs });
  }

  write(file, text) {
    mkdirSync(join(this.folder, file, '..'), { recursive: true });
    writeFileSync(join(this.folder, file), text);
  }

  read(file) {
    return readFileSync(join(this.folder, file), 'utf8');
  }

  files(folder) {
    return readdirSync(join(this.folder, folder));
  }
}

export function writeJson(file, value) {
  writeFileSync(file, `${JSON.stringify(value, null, 2)}\n`);
}

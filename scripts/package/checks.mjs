import { join } from 'node:path';
import { Failed, run } from './project.mjs';

/**
 * What one cell of the table does.
 * @typedef {object} Context
 * @property {import('./project.mjs').Installation} installation
 * @property {string} redisUrl
 * @property {string} keys a key prefix for this cell alone
 */

/** Compiles the application, runs it with both HTTP adapters, and a test without Redis. */
export const application =
  (type, options = {}) =>
  async (/** @type {Context} */ { installation, redisUrl, keys }) => {
    const project = installation.project(`app-${keys}`, type, ['app.ts', 'in-memory.ts']);
    await project.compile(options);
    const outputs = [];
    for (const adapter of ['express', 'fastify']) {
      const env = { REDIS_URL: redisUrl, KEYS: `${keys}:${adapter}`, ADAPTER: adapter };
      outputs.push(await project.node('dist/app.js', { env }));
    }
    outputs.push(await project.node('dist/in-memory.js'));
    for (const expected of ['ADAPTER express OK', 'ADAPTER fastify OK', 'IN MEMORY OK']) {
      if (!outputs.some(({ output }) => output.includes(expected))) throw new Failed(`no "${expected}" was printed`);
    }
    const warning = /Warning: .*|MODULE_TYPELESS.*/.exec(outputs.map(({ output }) => output).join('\n'));
    if (warning) throw new Failed(`node warns: ${warning[0]}`);
    return 'Express, Fastify, in memory';
  };

/** Files that must compile, and files whose every `@ts-expect-error` must be the error it names. */
export async function types({ installation, keys }) {
  const project = installation.project(`types-${keys}`, 'module', ['types']);
  let expected = 0;
  const wanted = new Set();
  for (const file of project.files('types')) {
    const lines = project.read(`types/${file}`).split('\n');
    for (const [i, line] of lines.entries()) {
      const [, code] = /@ts-expect-error (TS\d+)/.exec(line) ?? [];
      if (code === undefined) continue;
      lines[i] = `// expected: ${code}`;
      wanted.add(`types/${file}(${i + 2}): ${code}`);
      expected++;
    }
    project.write(`types/${file}`, lines.join('\n'));
  }
  const output = await project.compile({ noEmit: true }, { mayFail: true });
  const found = new Set(
    [...output.matchAll(/^(\S+)\((\d+),\d+\): error (TS\d+)/gm)].map(([, f, l, c]) => `${f}(${l}): ${c}`),
  );
  const missing = [...wanted].filter((each) => !found.has(each));
  const surplus = [...found].filter((each) => !wanted.has(each));
  if (missing.length + surplus.length > 0) {
    throw new Failed(
      `errors that did not come: ${missing.join('; ') || 'none'}\nothers: ${surplus.join('; ') || 'none'}\n${output}`,
    );
  }
  return `${expected} errors as expected`;
}

/** Declarations under the other ways of finding modules. */
export async function resolutions({ installation, keys }) {
  const settings = {
    bundler: { module: 'esnext', moduleResolution: 'bundler' },
    node20: { module: 'node20', moduleResolution: 'node16' },
  };
  for (const [name, options] of Object.entries(settings)) {
    const project = installation.project(`${name}-${keys}`, 'module', ['app.ts', 'in-memory.ts', 'types/accepted.ts']);
    await project.compile({ ...options, noEmit: true });
  }
  return Object.keys(settings).join(', ');
}

/** Every subpath by `import` and by `require`, as the same objects; and nothing besides. */
export async function subpaths({ installation, keys }) {
  const project = installation.project(`subpaths-${keys}`, 'module', []);
  project.write(
    'check.mjs',
    `import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
const require = createRequire(import.meta.url);
const manifest = JSON.parse(readFileSync(require.resolve('nestjs-redis-streams-mq/package.json'), 'utf8'));
const paths = Object.keys(manifest.exports).filter((path) => !path.endsWith('.json'));
for (const path of paths) {
  const name = 'nestjs-redis-streams-mq' + path.slice(1);
  const imported = await import(name);
  const required = require(name);
  assert.ok(Object.keys(imported).length > 0, name);
  for (const key of Object.keys(imported)) assert.equal(required[key], imported[key], name + ' ' + key);
}
for (const deep of ['dist/index.js', 'dist/core/keys.js', 'src/index.ts', 'nest/compose.js']) {
  const name = 'nestjs-redis-streams-mq/' + deep;
  await assert.rejects(import(name), { code: 'ERR_PACKAGE_PATH_NOT_EXPORTED' }, name);
  assert.throws(() => require(name), { code: 'ERR_PACKAGE_PATH_NOT_EXPORTED' }, name);
}
console.log(paths.join(' '));
`,
  );
  const { output } = await project.node('check.mjs');
  return output.trim();
}

/** The application in one file, by both bundlers. */
export async function bundles({ installation, redisUrl, keys }) {
  const project = installation.project(`bundle-${keys}`, 'module', ['app.ts']);
  await project.compile();
  project.write('bundle.mjs', BUNDLE);
  await project.node('bundle.mjs', { timeoutMs: 240_000 });
  for (const file of ['esbuild.mjs', 'webpack.cjs']) {
    const env = { REDIS_URL: redisUrl, KEYS: `${keys}:${file}`, ADAPTER: 'express' };
    const { output } = await project.node(`bundled/${file}`, { env });
    if (!output.includes('ADAPTER express OK')) throw new Failed(`${file}: ${output}`);
  }
  return 'esbuild (ESM, minified), webpack (CJS)';
}

/** What is not used leaves nothing behind: `sideEffects` says so, and it is true. */
export async function treeShaking({ installation, keys }) {
  const project = installation.project(`shake-${keys}`, 'module', []);
  project.write('nothing.js', `import 'nestjs-redis-streams-mq';\nconsole.log('end');\n`);
  project.write(
    'one.js',
    `import { RetryLater } from 'nestjs-redis-streams-mq';\nconsole.log(new RetryLater(5).delayMs);\n`,
  );
  project.write('shake.mjs', SHAKE);
  const { output } = await project.node('shake.mjs');
  const sizes = JSON.parse(output);
  if (sizes.nothing !== 0) throw new Failed(`an import for nothing brings ${sizes.nothing} bytes of the library`);
  if (sizes.one === 0 || sizes.one > 20_000) throw new Failed(`one class brings ${sizes.one} bytes of the library`);
  const { output: printed } = await run([process.execPath, join(project.folder, 'bundled/one.mjs')], {
    cwd: project.folder,
  });
  if (printed.trim() !== '5') throw new Failed(`the bundle of one class prints ${printed}`);
  return `nothing: 0 bytes, one class: ${sizes.one} bytes`;
}

/** Nest asks for these when the application uses them. */
const OPTIONAL = `[
  '@nestjs/websockets', '@nestjs/websockets/socket-module', '@nestjs/websockets/socket-module.js',
  '@nestjs/microservices', '@nestjs/microservices/microservices-module', '@nestjs/microservices/microservices-module.js',
  'class-validator', 'class-transformer', 'class-transformer/storage', '@fastify/static', '@fastify/view', '@fastify/middie', '@fastify/multipart',
  '@nestjs/mongoose', '@nestjs/sequelize', '@nestjs/sequelize/dist/common/sequelize.utils', '@nestjs/typeorm', '@nestjs/axios',
  '@nestjs/typeorm/dist/common/typeorm.utils', '@mikro-orm/core', '@grpc/grpc-js', '@grpc/proto-loader', 'amqplib',
]`;

const BUNDLE = `import { build } from 'esbuild';
import webpack from 'webpack';
const optional = ${OPTIONAL};
const isOptional = (name) => optional.some((each) => name === each || name.startsWith(each + '/'));
await build({
  entryPoints: ['dist/app.js'], outfile: 'bundled/esbuild.mjs', bundle: true, minify: true, keepNames: true, format: 'esm', platform: 'node',
  external: optional, logLevel: 'error',
  banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
});
const stats = await new Promise((resolve, reject) =>
  webpack(
    {
      mode: 'production', target: 'node20', entry: './dist/app.js', output: { path: process.cwd() + '/bundled', filename: 'webpack.cjs' },
      externals: [({ request }, done) => (isOptional(request) ? done(null, 'commonjs ' + request) : done())],
      ignoreWarnings: [() => true], performance: false, optimization: { minimize: false },
    },
    (error, result) => (error ? reject(error) : resolve(result)),
  ),
);
if (stats.hasErrors()) throw new Error(stats.toString({ all: false, errors: true }));
`;

const SHAKE = `import { build } from 'esbuild';
const sizes = {};
for (const name of ['nothing', 'one']) {
  const { metafile } = await build({
    entryPoints: [name + '.js'], outfile: 'bundled/' + name + '.mjs', bundle: true, format: 'esm', platform: 'node', packages: 'bundle', metafile: true,
    external: ['@nestjs/*', 'ioredis', 'prom-client', '@willsoto/*', 'rxjs', 'reflect-metadata', 'class-*'], logLevel: 'silent',
  });
  const [output] = Object.values(metafile.outputs);
  sizes[name] = Object.entries(output.inputs)
    .filter(([file]) => file.includes('node_modules/nestjs-redis-streams-mq/'))
    .reduce((sum, [, { bytesInOutput }]) => sum + bytesInOutput, 0);
}
console.log(JSON.stringify(sizes));
`;

// Packs the library, installs the tarball where users would, and looks whether it works there: `npm run test:package`.
// `-- --only nest11-cjs` runs the cells whose name has all of these words, `-- --keep` leaves the folder.
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { application, bundles, resolutions, subpaths, treeShaking, types } from './checks.mjs';
import { bundlers, settings } from './cells.mjs';
import { Installation, npm, run } from './project.mjs';

const root = join(import.meta.dirname, '../..');
const library = join(root, 'libs/redis-streams-mq');
const { only = '', keep } = parseArgs({ options: { only: { type: 'string' }, keep: { type: 'boolean' } } }).values;
const redisUrl = process.env.MQ_PACKAGE_REDIS_URL ?? 'redis://localhost:6379';
const words = only.split('-').filter(Boolean);

const first = settings[0].name;
/** @type {{ setting: string, name: string, check: Function }[]} */
const cells = settings.flatMap(({ name: setting }) => [
  { setting, name: `${setting}-esm`, check: application('module') },
  { setting, name: `${setting}-cjs`, check: application('commonjs') },
  { setting, name: `${setting}-resolutions`, check: resolutions },
  { setting, name: `${setting}-types`, check: types },
  { setting, name: `${setting}-subpaths`, check: subpaths },
]);
cells.push(
  { setting: first, name: `${first}-bundles`, check: bundles },
  { setting: first, name: `${first}-tree-shaking`, check: treeShaking },
);
const chosen = cells.filter(({ name }) => words.every((word) => name.split('-').includes(word)));
if (chosen.length === 0) {
  console.error(`there is no cell with ${words.join(' and ')}; there are ${cells.map(({ name }) => name).join(', ')}`);
  process.exit(2);
}

const folder = mkdtempSync(join(tmpdir(), 'mq-package-'));
const results = [];
try {
  const { tarball, size } = await pack();
  for (const { name, dependencies } of settings.filter((each) => chosen.some(({ setting }) => setting === each.name))) {
    console.log(`installing ${name} ...`);
    const isFirst = name === first;
    const installation = await Installation.make(join(folder, name), tarball, {
      ...dependencies,
      ...(isFirst && bundlers),
    });
    for (const cell of chosen.filter(({ setting }) => setting === name)) results.push(await look(cell, installation));
  }
  console.log(`\n${table(results)}\n\n${size}`);
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  if (keep) console.log(folder);
  else rmSync(folder, { recursive: true, force: true });
}
if (results.some(({ error }) => error)) process.exitCode = 1;

/** Built anew in a folder of its own, so that nothing of an earlier build is in it. */
async function pack() {
  console.log('building and packing ...');
  const staging = join(folder, 'library');
  for (const file of ['package.json', 'README.md', 'LICENSE']) cpSync(join(library, file), join(staging, file));
  const out = ['--outDir', join(staging, 'dist'), '--tsBuildInfoFile', join(folder, 'tsbuildinfo')];
  const project = join(library, 'tsconfig.build.json');
  await run([process.execPath, join(root, 'node_modules/typescript/bin/tsc'), '-p', project, ...out], {
    cwd: root,
    timeoutMs: 300_000,
  });
  const { output } = await run(npm('pack', '--json', '--pack-destination', folder), { cwd: staging });
  const [packed] = JSON.parse(output.slice(output.indexOf('[\n')));
  const manifest = await import(join(library, 'package.json'), { with: { type: 'json' } });
  const dependencies = Object.keys(manifest.default.dependencies ?? {});
  const optional = Object.keys(manifest.default.peerDependenciesMeta ?? {});
  const peers = Object.keys(manifest.default.peerDependencies ?? {}).filter((name) => !optional.includes(name));
  const kilobytes = (bytes) => `${Math.round(bytes / 1_000)} kB`;
  return {
    tarball: join(folder, packed.filename),
    size: [
      `packed ${kilobytes(packed.size)}, unpacked ${kilobytes(packed.unpackedSize)}, ${packed.entryCount} files`,
      `dependencies: ${dependencies.length} (${dependencies.join(', ')}); peers: ${peers.length} (${peers.join(', ')}); optional peers: ${optional.join(', ')}`,
    ].join('\n'),
  };
}

async function look({ name, check }, installation) {
  const started = performance.now();
  const seconds = () => ((performance.now() - started) / 1_000).toFixed(1);
  try {
    const found = await check({ installation, redisUrl, keys: name });
    console.log(`${name}: ok`);
    return { name, found, seconds: seconds() };
  } catch (error) {
    console.error(`${name}: FAILED\n${error.message}`);
    return { name, found: 'FAILED', error, seconds: seconds() };
  }
}

function table(rows) {
  const head = { name: 'cell', seconds: 's', found: 'what was seen' };
  const columns = ['name', 'seconds', 'found'];
  const widths = columns.map((column) => Math.max(...[head, ...rows].map((row) => row[column].length)));
  return [head, ...rows]
    .map((row) =>
      columns
        .map((column, i) => row[column].padEnd(widths[i]))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

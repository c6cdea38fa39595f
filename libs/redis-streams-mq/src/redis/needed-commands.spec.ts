import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { needed, neededCommands, probeOf } from './needed-commands.js';

const names = new Set(neededCommands.map(({ name }) => name));

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.spec.ts'))
    .map((file) => join(folder, file));
}

/** Commands as ACL rules name them, in the Lua of these files. */
function calledInside(files: readonly string[]): string[] {
  const found = new Set<string>();
  for (const file of files) {
    const text = readFileSync(file, 'utf8');
    for (const [, name, sub] of text.matchAll(/redis\.p?call\('([A-Z]+)'(?:, '([A-Z]+)')?/g)) {
      found.add([name, sub].filter((word) => word === undefined || !/^(GROUP)$/.test(word)).join('|'));
    }
    // Commands whose arguments are put together first.
    for (const [, name] of text.matchAll(/\{ '(X[A-Z]+)',/g)) found.add(name!);
    for (const [, a, b] of text.matchAll(/\bcommand, \w+, \w+ = '([A-Z]+)'|then command, \w+, \w+ = '([A-Z]+)'/g))
      found.add((a ?? b)!);
  }
  return [...found].map((name) => name.toLowerCase().replace(/\|$/, '')).sort();
}

describe('needed commands', () => {
  it('name every command that a script calls', () => {
    const called = calledInside([...filesIn(join(__dirname, 'scripts')), join(__dirname, 'script.ts')]);
    expect(called.length).toBeGreaterThan(30);
    expect(called.filter((name) => !names.has(name))).toEqual([]);
  });

  it('are each probed by a command of that name, on the given key alone', () => {
    for (const command of needed('consume').filter(({ name }) => name !== 'time')) {
      const [name, ...args] = probeOf(command, 'the-key');
      expect(command.name.startsWith(name.toLowerCase())).toBe(true);
      expect(args).toContain('the-key');
    }
  });

  it('of one that sends are among those of one that consumes', () => {
    const consuming = new Set(needed('consume'));
    expect(needed('produce').filter((command) => !consuming.has(command))).toEqual([]);
    expect(needed('produce').length).toBeLessThan(consuming.size);
  });
});

import { existsSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import ts from 'typescript';

const root = join(__dirname, '../..');
const ID = /\b(?:CONN|CLU|STR|DEL|NEST|OBS|DATA)-\d\d\b/g;
const NAME = /^(?:CONN|CLU|STR|DEL|NEST|OBS|DATA)-\d\d /;
const CASES = 95;
const UNTESTED = /^(?:Does not apply|Not in this version): \S.{20,}/;

interface Row {
  readonly id: string;
  readonly priority: string;
  readonly fault: string;
  /** Test files in backticks and a remark, or the reason for having none. */
  readonly shown: string;
}

function rows(): Row[] {
  const table = readFileSync(join(root, 'test/field-cases.md'), 'utf8').split('\n');
  return table
    .filter((line) => /^\| [A-Z]+-\d\d /.test(line))
    .map((line) => line.split('|').map((cell) => cell.trim()))
    .map(([, id = '', priority = '', fault = '', shown = '']) => ({ id, priority, fault, shown }));
}

/** Each file is read once. */
const found = new Map<string, Set<string>>();

const filesOf = ({ shown }: Row): string[] => [...shown.matchAll(/`([^`]+\.spec\.ts)`/g)].map(([, path = '']) => path);

/**
 * All ids in the names of the tests and suites of a file; a text that begins with one is taken for a name from a table of
 * cases. Comments do not count.
 */
function idsIn(path: string): Set<string> {
  const known = found.get(path);
  if (known !== undefined) return known;
  const ids = new Set<string>();
  found.set(path, ids);
  const add = (node: ts.Node): void => {
    if (ts.isStringLiteralLike(node) || ts.isTemplateHead(node)) for (const [id] of node.text.matchAll(ID)) ids.add(id);
    ts.forEachChild(node, add);
  };
  const visit = (node: ts.Node): void => {
    if (ts.isStringLiteralLike(node) && NAME.test(node.text)) add(node);
    if (ts.isCallExpression(node) && isTest(node.expression)) {
      add(node.expression);
      if (node.arguments[0] !== undefined) add(node.arguments[0]);
    }
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(path, readFileSync(join(root, path), 'utf8'), ts.ScriptTarget.Latest));
  return ids;
}

/** `it`, `describe.each(...)`, `describeWithServer` and the like; not what is skipped for good. */
function isTest(callee: ts.Expression): boolean {
  if (ts.isIdentifier(callee)) return /^(?:it|test|describe\w*)$/.test(callee.text);
  if (ts.isPropertyAccessExpression(callee)) return callee.name.text !== 'skip' && isTest(callee.expression);
  return ts.isCallExpression(callee) && isTest(callee.expression);
}

const specs = (): string[] =>
  ts.sys
    .readDirectory(root, ['.spec.ts'], ['**/node_modules', '**/dist'], ['test/**/*', 'libs/*/src/**/*'])
    .map((path) => relative(root, path));

describe('test/field-cases.md', () => {
  it('has each case once, with a priority and what it is', () => {
    const all = rows();
    expect(new Set(all.map(({ id }) => id)).size).toBe(all.length);
    expect(all).toHaveLength(CASES);
    expect(all.filter(({ priority, fault }) => !/^[ABC]$/.test(priority) || fault === '')).toEqual([]);
  });

  it('names a test file for each case, or says why there is none', () => {
    const bare = rows().filter((row) => filesOf(row).length === 0 && !UNTESTED.test(row.shown));
    expect(bare.map(({ id }) => id)).toEqual([]);
  });

  it('names files alone that have a test of that id in its name', () => {
    const wrong = rows().flatMap((row) =>
      filesOf(row)
        .filter((path) => !existsSync(join(root, path)) || !idsIn(path).has(row.id))
        .map((path) => `${row.id} is in no test name of ${path}`),
    );
    expect(wrong).toEqual([]);
  });

  it('knows every id that is in the name of a test', () => {
    const known = new Set(rows().map(({ id }) => id));
    const unknown = specs().flatMap((path) =>
      [...idsIn(path)].filter((id) => !known.has(id)).map((id) => `${id} in ${path}`),
    );
    expect(unknown).toEqual([]);
  });
});

import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import { UsageError } from '../cli.js';
import type { Row } from '../scenario.js';

/**
 * The lines of a JSON-lines file, one message each; blank lines are skipped. A line whose key field is missing or null
 * becomes a message without a key.
 * @throws UsageError when the file cannot be read, or naming the line that is not a JSON object or has no usable key.
 */
export async function* readJsonLines(path: string, keyField: string): AsyncGenerator<Row> {
  const file = await openFile(path);
  try {
    let number = 0;
    for await (const line of file.readLines({ encoding: 'utf8', autoClose: false })) {
      number++;
      const text = number === 1 ? line.replace(/^\uFEFF/, '') : line;
      if (text.trim() !== '') yield parseLine(text, keyField, `${path}, line ${number}`);
    }
  } finally {
    await file.close();
  }
}

async function openFile(path: string) {
  try {
    // npm runs scripts in the package's folder; INIT_CWD is where the person typed the command.
    const file = await open(resolve(process.env['INIT_CWD'] ?? '.', path));
    if ((await file.stat()).isFile()) return file;
    await file.close();
  } catch (error) {
    throw new UsageError(`Cannot read ${path} (--file): ${error instanceof Error ? error.message : String(error)}`);
  }
  throw new UsageError(`Cannot read ${path} (--file): it is not a file.`);
}

function parseLine(text: string, keyField: string, where: string): Row {
  let payload: unknown;
  try {
    payload = JSON.parse(text);
  } catch (error) {
    throw new UsageError(`${where}: not JSON (${error instanceof Error ? error.message : String(error)})`);
  }
  if (typeof payload !== 'object' || payload === null || Array.isArray(payload)) {
    throw new UsageError(`${where}: not a JSON object, so it has no field "${keyField}" to be its key`);
  }
  const key: unknown = Object.hasOwn(payload, keyField) ? (payload as Record<string, unknown>)[keyField] : null;
  if (typeof key === 'string') return { payload, key };
  if (typeof key === 'number' || typeof key === 'boolean') return { payload, key: String(key) };
  if (key === null) return { payload, key };
  throw new UsageError(`${where}: "${keyField}" is an object or a list; a key is a text, a number, true or false`);
}

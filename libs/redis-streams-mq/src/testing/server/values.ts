/*
 * Bytes are kept as strings of one character per byte (latin1), so that they can be keys of a Map and compared. The server
 * makes them from what a client sends, and the client makes buffers of them again.
 */

/** Bytes, one character each. */
export type Bytes = string;

/** `OK` and the like, which Lua sees as a table and not as a string. */
export class Status {
  constructor(readonly text: string) {}
}

/** What a command answers. Errors are thrown as `ReplyError`, or stand in an answer of a script. */
export type Answer = Bytes | number | null | Status | ReplyError | readonly Answer[];

export const OK: Status = new Status('OK');

/** An error as Redis says it; its first word is its code. */
export class ReplyError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ReplyError';
  }
}

export function wrongType(): ReplyError {
  return new ReplyError('WRONGTYPE Operation against a key holding the wrong kind of value');
}

export function syntaxError(): ReplyError {
  return new ReplyError('ERR syntax error');
}

export function toBytes(arg: string | number | Buffer): Bytes {
  return Buffer.isBuffer(arg) ? arg.toString('latin1') : Buffer.from(String(arg), 'utf8').toString('latin1');
}

/** @throws ReplyError for what is no whole number. */
export function integer(bytes: Bytes | undefined): number {
  const value = Number(bytes);
  if (bytes === undefined || bytes === '' || !Number.isInteger(value)) {
    throw new ReplyError('ERR value is not an integer or out of range');
  }
  return value;
}

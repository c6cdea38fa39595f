/** What an entry of a group's retry stream says of the message in it. */
export interface RetryEntry {
  /** Id of the original entry on the partition's stream. */
  readonly origin: string;
  /** Handler calls made before, by this group. */
  readonly attemptsMade: number;
  /** The message's own fields and values. */
  readonly fields: readonly Buffer[];
}

/**
 * Reads an entry as the script `move-retries` writes it: `origin`, `history` if there is one, `attempt`, and
 * then the message's own fields. `null` when it does not begin so: it is someone else's, and all its fields are the message's.
 */
export function parseRetryEntry(fields: readonly Buffer[]): RetryEntry | null {
  // The history is for whoever looks at a dead letter.
  const attemptAt = fields[2]?.toString('latin1') === 'history' ? 4 : 2;
  if (fields[0]?.toString('latin1') !== 'origin' || fields[attemptAt]?.toString('latin1') !== 'attempt') return null;
  const attemptsMade = Number(fields[attemptAt + 1]?.toString('latin1'));
  if (!Number.isSafeInteger(attemptsMade) || attemptsMade < 0) return null;
  return { origin: fields[1]!.toString('latin1'), attemptsMade, fields: fields.slice(attemptAt + 2) };
}

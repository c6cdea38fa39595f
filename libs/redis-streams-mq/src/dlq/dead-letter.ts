import type { DeadLetter, DeadLetterError, FailedAttempt } from '../core/dead-letter.js';
import type { ValidationIssue } from '../core/errors.js';
import type { DeadReason } from '../core/events.js';
import { eventIdFromWire } from '../core/event-id.js';
import { decodeMessage, type DecodedMessage } from '../core/message.js';
import type { RawDeadLetter } from '../redis/scripts/dlq.script.js';

/** Reasons that come from a call of the handler; the others are found before it. */
const CALLED: ReadonlySet<string> = new Set<DeadReason>(['exhausted', 'rejected', 'validation']);

export function toDeadLetter(topic: string, partition: number, raw: RawDeadLetter): DeadLetter {
  const { metadata, history } = raw;
  const errorName = metadata.get('errorName');
  const message = raw.fields === null ? null : decodeOrNull(raw.fields);
  const wireEventId = metadata.get('eventId');
  return {
    id: `${partition}/${raw.id}`,
    topic,
    partition,
    group: metadata.get('group') ?? '',
    originalMessageId: metadata.get('originalMessageId') ?? '',
    eventId: message?.eventId ?? (wireEventId === undefined ? null : eventIdOrNull(wireEventId)),
    key: metadata.get('key') ?? null,
    failedAt: Number(metadata.get('failedAt') ?? 0),
    attempts: Number(metadata.get('attempts') ?? 0),
    reason: reasonOf(metadata.get('reason')),
    error: errorName === undefined ? null : toError(errorName, metadata),
    failures: failuresOf(raw),
    deathCount: history.deathCount,
    deaths: history.deaths.map(({ at, reason, ...death }) => ({ ...death, failedAt: at, reason: reasonOf(reason) })),
    payload: message?.payload ?? null,
    headers: message?.headers ?? {},
    fields: raw.fields ?? [],
  };
}

/** The earlier attempts are in the history, the last one is what the letter itself says. */
function failuresOf({ metadata, history }: RawDeadLetter): FailedAttempt[] {
  const failures = history.attempts.map(({ attempt, at, error }) => ({ attempt, failedAt: at, error }));
  const attempts = Number(metadata.get('attempts') ?? 0);
  if (!CALLED.has(metadata.get('reason') ?? '') || !(attempts > (failures.at(-1)?.attempt ?? 0))) return failures;
  const name = metadata.get('errorName');
  const error = name === undefined ? '' : `${name}: ${metadata.get('errorMessage') ?? ''}`;
  return [...failures, { attempt: attempts, failedAt: Number(metadata.get('failedAt') ?? 0), error }];
}

function reasonOf(reason: string | undefined): DeadReason {
  return (reason || 'malformed') as DeadReason;
}

function toError(name: string, metadata: RawDeadLetter['metadata']): DeadLetterError {
  const issues = issuesOrNull(metadata.get('errorIssues'));
  return {
    name,
    message: metadata.get('errorMessage') ?? '',
    stack: metadata.get('errorStack') ?? null,
    ...(issues !== null && { issues }),
  };
}

function issuesOrNull(text: string | undefined): readonly ValidationIssue[] | null {
  try {
    return text === undefined ? null : (JSON.parse(text) as readonly ValidationIssue[]);
  } catch {
    return null;
  }
}

function decodeOrNull(fields: readonly Buffer[]): DecodedMessage | null {
  try {
    return decodeMessage(fields);
  } catch {
    return null;
  }
}

/** `null` for what this library never writes: one foreign entry must not hide the letters around it. */
function eventIdOrNull(wire: string): string | null {
  try {
    return eventIdFromWire(wire);
  } catch {
    return null;
  }
}

import { types } from 'node:util';
import { describeThrown, MqValidationError } from '../core/errors.js';
import type { GroupPartitionRef } from '../core/events.js';
import { eventIdToWire } from '../core/event-id.js';
import type { DecodedMessage } from '../core/message.js';

const MAX_NAME = 200;
const MAX_MESSAGE = 1_000;
const MAX_STACK = 4_000;
const MAX_ISSUES = 4_000;

function cut(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length)}...` : text;
}

/** As JSON, as many as there is room for. */
function issuesText({ issues }: MqValidationError): string {
  const texts: string[] = [];
  let length = 0;
  for (const { path, message } of issues) {
    const text = JSON.stringify({ path: cut(path, MAX_NAME), message: cut(message, MAX_MESSAGE) });
    length += text.length;
    if (length > MAX_ISSUES) break;
    texts.push(text);
  }
  return `[${texts.join(',')}]`;
}

/** What a dead letter says about itself, as field names and values; the script adds when it failed and the original fields. */
export function deadLetterMetadata(
  letter: GroupPartitionRef & {
    readonly originalMessageId: string;
    readonly message: DecodedMessage | null;
    readonly attempts: number;
    readonly reason: string;
    readonly error: unknown;
  },
): (string | number)[] {
  const { message, error } = letter;
  const { topic, partition, group, originalMessageId, attempts, reason } = letter;
  const named = { originalTopic: topic, partitionId: partition, originalMessageId, group, attempts, reason };
  const fields: (string | number)[] = Object.entries(named).flat();
  if (message !== null) fields.push('eventId', eventIdToWire(message.eventId));
  if (message?.key != null) fields.push('key', message.key);
  if (error !== undefined) {
    const { name, message: text, stack } = describeThrown(error);
    fields.push('errorName', cut(name, MAX_NAME), 'errorMessage', cut(text, MAX_MESSAGE));
    if (stack !== null) fields.push('errorStack', cut(stack, MAX_STACK));
    // Asked of a revoked proxy, `instanceof` throws.
    if (types.isNativeError(error) && error instanceof MqValidationError) fields.push('errorIssues', issuesText(error));
  }
  return fields;
}

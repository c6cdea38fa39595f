import { MqInvalidNameError } from './errors.js';

/** What a name is for; it only changes the wording of a refusal. */
export type NameKind = 'topic' | 'group' | 'instance';

const MAX_NAME_LENGTH = 249;
const FOREIGN_CHARACTER = /[^A-Za-z0-9._-]/u;
const RULE = `a name has 1 to ${MAX_NAME_LENGTH} of the characters A-Z, a-z, 0-9, ".", "_" and "-", and is not "." or ".."`;

/**
 * Says in one sentence, the rule included, why `value` cannot be a name, or returns `undefined` when it can.
 * The rule is Kafka's for topics (`org.apache.kafka.common.internals.Topic`), used here for every name that becomes
 * part of a key.
 */
export function nameProblem(kind: NameKind, value: unknown): string | undefined {
  const fault = faultOf(value);
  return fault === undefined ? undefined : `${kind} name ${fault}: ${RULE}`;
}

/** @throws MqInvalidNameError with the rule in the message, when `name` cannot name a topic. */
export function assertTopicName(name: unknown): asserts name is string {
  assertName('topic', name);
}

/** @throws MqInvalidNameError with the rule in the message, when `name` cannot name a consumer group. */
export function assertGroupName(name: unknown): asserts name is string {
  assertName('group', name);
}

function assertName(kind: NameKind, name: unknown): void {
  const problem = nameProblem(kind, name);
  if (problem !== undefined) throw new MqInvalidNameError(problem, { kind, name: shown(name) });
}

function faultOf(value: unknown): string | undefined {
  if (typeof value !== 'string') return `is not a string but ${shown(value)}`;
  if (value === '') return 'is empty';
  if (value.length > MAX_NAME_LENGTH) return `${shown(value)} has ${value.length} characters`;
  if (value === '.' || value === '..') return `${shown(value)} is not allowed`;
  const foreign = FOREIGN_CHARACTER.exec(value);
  return foreign === null ? undefined : `${shown(value)} contains ${JSON.stringify(foreign[0])}`;
}

function shown(value: unknown): string {
  if (typeof value !== 'string') return value === null ? 'null' : typeof value;
  return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}...` : value);
}

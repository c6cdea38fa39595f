import type { DeadReason } from '../core/events.js';
import { eventIdToWire } from '../core/event-id.js';
import { decodeMessage } from '../core/message.js';
import type { DeadLetter } from '../core/dead-letter.js';
import type { InMemoryEngine } from './in-memory-engine.js';
import { unpack } from './server/message-pack.js';
import type { Stream } from './server/stream.js';
import type { Bytes } from './server/values.js';

/** A message as it was sent. */
export interface SentMessage {
  readonly topic: string;
  readonly partition: number;
  readonly eventId: string;
}

/** Where a message is for one group. */
export type MessageState =
  /** Sent with a delay that has not passed. */
  | { readonly status: 'delayed'; readonly dueAt: number }
  /** Not taken by the group yet. */
  | { readonly status: 'waiting'; readonly attemptsMade: number }
  /** Taken and not settled: a handler runs, or waits for what is before it. */
  | { readonly status: 'pending'; readonly attemptsMade: number }
  /** Failed, and comes again at `retryAt`: from the bucket, or, with `retryOrdering`, in its place. */
  | { readonly status: 'retry'; readonly attemptsMade: number; readonly retryAt: number; readonly error: string }
  | { readonly status: 'acked' }
  | {
      readonly status: 'dead';
      readonly attemptsMade: number;
      readonly reason: DeadReason;
      readonly error: DeadLetter['error'];
    }
  /** Never sent to this topic, or gone by retention. */
  | { readonly status: 'unknown' };

/** A message that the group has taken and not settled. */
export interface PendingMessage extends SentMessage {
  readonly id: string;
  readonly group: string;
  readonly key: string | null;
  readonly payload: unknown;
  readonly headers: Readonly<Record<string, string>>;
  /** Handler calls that ended before. */
  readonly attemptsMade: number;
}

/** A message that waits for its retry. */
export interface RetryingMessage extends PendingMessage {
  /** By the clock of the tests, in milliseconds. */
  readonly retryAt: number;
  /** What the last call failed with. */
  readonly error: string;
}

interface Found {
  readonly id: string;
  readonly attemptsMade: number;
  readonly fields: readonly Bytes[];
}

interface FoundRetry extends Found {
  readonly retryAt: number;
  readonly error: string;
}

/** One group's view of one partition. */
interface Place {
  readonly engine: InMemoryEngine;
  readonly topic: string;
  readonly partition: number;
  readonly group: string;
}

/** What the group holds pending on that partition: retries first, as they are handled. */
export function pendingOf(place: Place): PendingMessage[] {
  const { engine, topic, partition, group } = place;
  const keys = engine.keys.groupPartition(topic, partition, group);
  const retries = engine.server.data.stream(keys.retryStream);
  return [
    ...pendingIds(retries, group).map((id) => fromRetryStream(retries?.get(id)?.fields ?? [])),
    ...inPlace(place).filter((found) => !waitsForRetry(place, found)),
  ].map((found) => describe(place, found));
}

/** What waits for its retry on that partition, in the group's bucket or in its place, earliest first. */
export function retriesOf(place: Place): RetryingMessage[] {
  return failedOf(place).map(({ retryAt, error, ...found }) => ({ ...describe(place, found), retryAt, error }));
}

export function stateOf(place: Place, eventId: string, letters: readonly DeadLetter[]): MessageState {
  const { engine, topic, partition, group } = place;
  const wire = eventIdToWire(eventId);
  const isIt = (fields: readonly Bytes[]): boolean => fieldOf(fields, 'eventId') === wire;
  const { data } = engine.server;
  const keys = engine.keys.groupPartition(topic, partition, group);

  const retry = failedOf(place).find(({ fields }) => isIt(fields));
  if (retry !== undefined) {
    const { attemptsMade, retryAt, error } = retry;
    return { status: 'retry', attemptsMade, retryAt, error };
  }
  const pending = pendingOf(place).find((each) => each.eventId === eventId);
  if (pending !== undefined) return { status: 'pending', attemptsMade: pending.attemptsMade };
  const again = data.stream(keys.retryStream)?.entries.find(({ fields }) => isIt(fields));
  if (again !== undefined) return { status: 'waiting', attemptsMade: fromRetryStream(again.fields).attemptsMade };
  const letter = letters.find((each) => each.eventId === eventId && each.group === group);
  if (letter !== undefined) {
    return { status: 'dead', attemptsMade: letter.attempts, reason: letter.reason, error: letter.error };
  }
  const stream = data.stream(keys.stream);
  const entry = stream?.entries.findLast(({ fields }) => isIt(fields));
  if (entry !== undefined) {
    const waits = stream?.after(stream.groups.get(group)?.lastDelivered ?? '0-0') ?? [];
    return waits.includes(entry) ? { status: 'waiting', attemptsMade: 0 } : { status: 'acked' };
  }
  const delayed = data
    .sorted(keys.delayed)
    ?.inOrder()
    .find(([member]) => member.endsWith(`:${wire}`));
  return delayed === undefined ? { status: 'unknown' } : { status: 'delayed', dueAt: delayed[1] };
}

function pendingIds(stream: Stream | undefined, group: string): string[] {
  return (
    stream?.groups
      .get(group)
      ?.pendingInOrder()
      .map(({ id }) => id) ?? []
  );
}

/** The mover writes two fields before those of the message. */
function fromRetryStream(fields: readonly Bytes[]): Found {
  return { id: fields[1] ?? '', attemptsMade: Number(fields[3] ?? 0), fields: fields.slice(4) };
}

/** What is pending on the partition's own stream, with what was noted of it: with `retryOrdering`, failed messages stay there. */
function inPlace({ engine, topic, partition, group }: Place): (Found & { readonly retryAt: number | null })[] {
  const keys = engine.keys.groupPartition(topic, partition, group);
  const { data } = engine.server;
  const stream = data.stream(keys.stream);
  const notes = data.hash(keys.held);
  return pendingIds(stream, group).map((id) => {
    const [, attempts, due] = /^(\d+):(\d+)$/.exec(notes?.get(id) ?? '') ?? [];
    const fields = stream?.get(id)?.fields ?? [];
    return { id, attemptsMade: Number(attempts ?? 0), retryAt: due === undefined ? null : Number(due), fields };
  });
}

/** The note stays until the message is settled, also while it is handled once more. */
function waitsForRetry<F extends { readonly retryAt: number | null }>(
  { engine }: Place,
  found: F,
): found is F & { readonly retryAt: number } {
  return found.retryAt !== null && found.retryAt > engine.now;
}

function failedOf(place: Place): FoundRetry[] {
  const { engine, topic, partition, group } = place;
  const held = inPlace(place)
    .filter((found) => waitsForRetry(place, found))
    .map((found) => ({ ...found, error: engine.failureOf({ topic, partition, group, id: found.id }) }));
  return [...bucketOf(place), ...held].sort((a, b) => a.retryAt - b.retryAt);
}

function bucketOf({ engine, topic, partition, group }: Place): FoundRetry[] {
  const keys = engine.keys.groupPartition(topic, partition, group);
  const { data } = engine.server;
  const items = data.hash(keys.retryItems);
  return (data.sorted(keys.retry)?.inOrder() ?? []).map(([id, retryAt]) => {
    const [attempts, error, fields] = unpack(items?.get(id) ?? '\x93\xa10\xa0\x90') as [string, string, string[]];
    return { id, attemptsMade: Number(attempts), fields, retryAt, error: Buffer.from(error, 'latin1').toString() };
  });
}

function fieldOf(fields: readonly Bytes[], name: string): Bytes | undefined {
  for (let i = 0; i < fields.length; i += 2) if (fields[i] === name) return fields[i + 1];
  return undefined;
}

function describe({ engine, topic, partition, group }: Place, { id, attemptsMade, fields }: Found): PendingMessage {
  const { payload, key, eventId, headers } = decodeMessage(fields.map((field) => Buffer.from(field, 'latin1')));
  return {
    id,
    topic,
    partition,
    group,
    eventId,
    key,
    payload: engine.serializer.deserialize(payload),
    headers,
    attemptsMade,
  };
}

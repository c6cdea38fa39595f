import { eventIdToWire } from '../core/event-id.js';
import { isStreamId } from '../core/stream-id.js';
import { call } from '../redis/script.js';
import { findEvent, type FindEventReply } from '../redis/scripts/find-event.script.js';
import { invalidArgument, partitionsOf, requirePartition, requireTopic, type AdminDeps } from './admin-deps.js';
import { badCursor } from './paging.js';
import { toRetainedMessage, type RetainedMessage } from './retained-message.js';

/** Where an event id is looked for. */
export interface EventSearchOptions {
  /** Only in this partition. */
  readonly partition?: number;
  /** Entries to look at before giving up, 1 to 10000000. @defaultValue 100000 */
  readonly maxScanned?: number;
  /** The `cursor` of the search that gave up, or that found one of several. */
  readonly cursor?: string;
}

/** Where an event id was found, and how far was looked. */
export interface EventSearchResult {
  /** The first that was found; `null` when none was in what has been looked at. */
  readonly message: RetainedMessage | null;
  /** Entries that were looked at. */
  readonly scanned: number;
  /** Where to go on; `null` when everything was looked at. With a `null` message: it gave up, the event may still be there. */
  readonly cursor: string | null;
}

interface Range {
  readonly from: string;
  readonly to: string;
}

/** One range of one partition. */
interface Stretch extends Range {
  /** Of the range, in their order. */
  readonly number: number;
  readonly partition: number;
}

interface Place {
  readonly range: number;
  readonly partition: number;
  /** The last id that was looked at; empty before the first. */
  readonly after: string;
}

const MAX_SCANNED = 100_000;
/** Entries that one script looks at: a millisecond or two of the server's time. */
const PER_CALL = 1_000;
/** How far a sender's clock may be off, and how long it may take to send, where we look first. */
const WINDOW_MS = 5 * 60_000;

/** Finds messages by event id, which no key leads to: first around the time that a UUIDv7 carries, then everywhere else. */
export class EventSearch {
  constructor(private readonly deps: AdminDeps) {}

  async find(topic: string, eventId: string, options: EventSearchOptions = {}): Promise<EventSearchResult> {
    const { partition, maxScanned = MAX_SCANNED } = options;
    if (!Number.isInteger(maxScanned) || maxScanned < 1 || maxScanned > 10_000_000) {
      throw invalidArgument('maxScanned must be an integer from 1 to 10000000');
    }
    const wire = toWire(eventId);
    const ranges = rangesFor(eventId);
    const first = parseCursor(options.cursor, ranges.length);
    const meta = await requireTopic(this.deps, topic);
    if (partition !== undefined) await requirePartition(this.deps, topic, partition);
    const partitions = partition === undefined ? partitionsOf(meta) : [partition];
    let scanned = 0;
    for (const stretch of stretchesOf(ranges, partitions, first)) {
      let start: string | null = stretch.from;
      while (start !== null) {
        if (scanned >= maxScanned) return { message: null, scanned, cursor: cursorOf(stretch, start) };
        const reply: FindEventReply = await this.look(topic, wire, { ...stretch, from: start }, maxScanned - scanned);
        scanned += reply.scanned;
        start = reply.last === null ? null : `(${reply.last}`;
        if (reply.entry === null) continue;
        const { id, fields } = reply.entry;
        const place = { topic, partition: stretch.partition, id };
        const message = toRetainedMessage(place, fields ?? [], this.deps.serializer);
        return { message, scanned, cursor: cursorOf(stretch, `(${id}`) };
      }
    }
    return { message: null, scanned, cursor: null };
  }

  private look(
    topic: string,
    eventId: string,
    { partition, from, to }: Stretch,
    left: number,
  ): Promise<FindEventReply> {
    const stream = this.deps.keys.stream(topic, partition);
    const limit = Math.min(PER_CALL, left);
    return this.deps.connection.run(call(findEvent, { stream }, { eventId, from, to, limit }));
  }
}

/** What of all streams is left to look at, from that place on. */
function stretchesOf(ranges: readonly Range[], partitions: readonly number[], first: Place): Stretch[] {
  return ranges
    .flatMap((range, number) => partitions.map((partition) => ({ ...range, number, partition })))
    .filter(({ number, partition }) => number > first.range || (number === first.range && partition >= first.partition))
    .map((stretch) => {
      const isFirst = stretch.number === first.range && stretch.partition === first.partition && first.after !== '';
      return isFirst ? { ...stretch, from: `(${first.after}` } : stretch;
    });
}

function toWire(eventId: string): string {
  try {
    return eventIdToWire(eventId);
  } catch {
    throw invalidArgument('eventId must be a UUID or 1 to 128 printable ASCII characters');
  }
}

/** What of a stream to look at, in this order. */
function rangesFor(eventId: string): readonly Range[] {
  const [, high, low] = /^([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-/i.exec(eventId) ?? [];
  if (high === undefined || low === undefined) return [{ from: '-', to: '+' }];
  const at = Number.parseInt(high + low, 16);
  const start = Math.max(0, at - WINDOW_MS);
  const ranges = [
    { from: `${start}-0`, to: String(at + WINDOW_MS) },
    // A delayed message is stored when it is due.
    { from: `${at + WINDOW_MS + 1}-0`, to: '+' },
  ];
  return start === 0 ? ranges : [...ranges, { from: '-', to: String(start - 1) }];
}

/** `<range>/<partition>/<last id>`. */
function cursorOf({ number, partition }: Stretch, start: string): string {
  return `${number}/${partition}/${start.startsWith('(') ? start.slice(1) : ''}`;
}

function parseCursor(cursor: string | undefined, ranges: number): Place {
  if (cursor === undefined) return { range: 0, partition: 0, after: '' };
  const [, range, partition, after] = /^(\d)\/(\d{1,4})\/(\S*)$/.exec(String(cursor)) ?? [];
  if (range === undefined || Number(range) >= ranges || (after !== '' && !isStreamId(after))) throw badCursor(cursor);
  return { range: Number(range), partition: Number(partition), after: after! };
}

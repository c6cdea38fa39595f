import { compareStreamIds, nextStreamId, previousStreamId } from '../../core/stream-id.js';
import type { CommandContext, CommandHandler } from './key-commands.js';
import { Stream, StreamGroup, type PendingEntry, type StreamEntry } from './stream.js';
import { integer, OK, ReplyError, syntaxError, type Answer, type Bytes } from './values.js';

const MAX_ID = '18446744073709551615-18446744073709551615';

/** Commands on streams and their groups, but for reads that wait. */
export const streamCommands: Readonly<Record<string, CommandHandler>> = {
  XADD: xadd,
  XLEN: ({ data }, [key = '']) => data.stream(key)?.entries.length ?? 0,
  XRANGE: ({ data }, [key = '', start = '', end = '', ...options]) =>
    (data.stream(key)?.between(firstOf(start), lastOf(end), countOf(options)) ?? []).map(toAnswer),
  XREVRANGE: ({ data }, [key = '', end = '', start = '', ...options]) =>
    (data.stream(key)?.between(firstOf(start), lastOf(end)) ?? [])
      .toReversed()
      .slice(0, countOf(options))
      .map(toAnswer),
  XDEL: ({ data }, [key = '', ...ids]) => {
    const stream = data.stream(key);
    return ids.filter((id) => stream?.delete(wholeId(id, '0'))).length;
  },
  XTRIM: ({ data }, [key = '', ...options]) => trim(data.stream(key), options),
  XGROUP: xgroup,
  XACK: ({ data }, [key = '', group = '', ...ids]) => {
    const pending = data.stream(key)?.groups.get(group)?.pending;
    return ids.filter((id) => pending?.delete(wholeId(id, '0'))).length;
  },
  XPENDING: xpending,
  XCLAIM: xclaim,
  XINFO: xinfo,
};

/**
 * The entries that a group's consumer gets now, by stream; `null` when there are none and the command may wait.
 * @throws ReplyError `NOGROUP` when one of the streams has no such group.
 */
export function readGroup(
  { data, now }: CommandContext,
  args: readonly Bytes[],
): { readonly answer: Answer; readonly blockMs: number | null } {
  let count = Infinity;
  let blockMs: number | null = null;
  const [, group = '', consumer = ''] = args;
  let at = 3;
  for (; at < args.length && args[at]!.toUpperCase() !== 'STREAMS'; at++) {
    const option = args[at]!.toUpperCase();
    if (option === 'COUNT') count = integer(args[++at]);
    else if (option === 'BLOCK') blockMs = integer(args[++at]);
    else throw syntaxError();
  }
  const names = args.slice(at + 1);
  const keys = names.slice(0, names.length / 2);
  const groups = keys.map((key) => {
    const stream = data.stream(key);
    const found = stream?.groups.get(group);
    if (stream === undefined || found === undefined) {
      throw new ReplyError(`NOGROUP No such key '${key}' or consumer group '${group}' in XREADGROUP with GROUP option`);
    }
    return { key, stream, group: found };
  });
  const answer: Answer[] = [];
  for (const [i, { key, stream, group: found }] of groups.entries()) {
    const from = names[keys.length + i]!;
    found.consumers.add(consumer);
    if (from !== '>') {
      const own = found
        .pendingInOrder()
        .filter((each) => each.consumer === consumer && compareStreamIds(each.id, wholeId(from, '0')) > 0);
      answer.push([key, own.slice(0, count).map(({ id }) => [id, [...(stream.get(id)?.fields ?? [])]])]);
      continue;
    }
    const entries = stream.after(found.lastDelivered, count);
    if (entries.length === 0) continue;
    for (const { id } of entries) found.pending.set(id, { id, consumer, deliveredAt: now(), deliveries: 1 });
    found.lastDelivered = entries.at(-1)!.id;
    answer.push([key, entries.map(toAnswer)]);
  }
  return { answer: answer.length === 0 ? null : answer, blockMs };
}

function xadd({ data, now }: CommandContext, [key = '', ...rest]: readonly Bytes[]): Answer {
  const existing = data.stream(key);
  let at = 0;
  const trimBy: Bytes[] = [];
  for (; at < rest.length; at++) {
    const option = rest[at]!.toUpperCase();
    if (option === 'NOMKSTREAM') {
      if (existing === undefined) return null;
    } else if (option === 'MAXLEN' || option === 'MINID' || option === 'LIMIT') {
      trimBy.push(option);
      if (rest[at + 1] === '~' || rest[at + 1] === '=') at++;
      trimBy.push(rest[++at]!);
    } else break;
  }
  const [id = '', ...fields] = rest.slice(at);
  if (fields.length === 0 || fields.length % 2 !== 0) {
    throw new ReplyError("ERR wrong number of arguments for 'xadd' command");
  }
  const stream = data.orNew(key, existing, () => new Stream());
  const added = stream.add(id, fields, now());
  if (trimBy.length > 0) trim(stream, trimBy);
  return added;
}

function trim(stream: Stream | undefined, options: readonly Bytes[]): number {
  const [by = '', ...rest] = options.filter((option) => option !== '=' && option !== '~');
  if (stream === undefined) return 0;
  const limit = rest[1]?.toUpperCase() === 'LIMIT' ? integer(rest[2]) : Infinity;
  const excess =
    by.toUpperCase() === 'MAXLEN'
      ? stream.entries.length - integer(rest[0])
      : stream.indexOf(wholeId(rest[0] ?? '', '0'));
  return stream.dropOldest(Math.min(excess, limit));
}

function xgroup({ data }: CommandContext, [what = '', key = '', name = '', ...rest]: readonly Bytes[]): Answer {
  const options = rest.map((each) => each.toUpperCase());
  let stream = data.stream(key);
  if (what.toUpperCase() === 'CREATE' && options.includes('MKSTREAM')) {
    stream = data.orNew(key, stream, () => new Stream());
  }
  if (stream === undefined) {
    throw new ReplyError(
      'ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.',
    );
  }
  const group = stream.groups.get(name);
  const end = stream.lastId;
  const position = (): string => (rest[0] === '$' ? end : wholeId(rest[0] ?? '0', '0'));
  switch (what.toUpperCase()) {
    case 'CREATE':
      if (group !== undefined) throw new ReplyError('BUSYGROUP Consumer Group name already exists');
      stream.groups.set(name, new StreamGroup(position()));
      return OK;
    case 'DESTROY':
      return Number(stream.groups.delete(name));
    case 'SETID':
      if (group === undefined) throw noGroup(key, name);
      group.lastDelivered = position();
      return OK;
    case 'CREATECONSUMER':
      if (group === undefined) throw noGroup(key, name);
      if (group.consumers.has(rest[0]!)) return 0;
      group.consumers.add(rest[0]!);
      return 1;
    case 'DELCONSUMER': {
      if (group === undefined) throw noGroup(key, name);
      const theirs = [...group.pending.values()].filter(({ consumer }) => consumer === rest[0]);
      for (const { id } of theirs) group.pending.delete(id);
      group.consumers.delete(rest[0]!);
      return theirs.length;
    }
    default:
      throw new ReplyError(`ERR unknown subcommand '${what}'. Try XGROUP HELP.`);
  }
}

function xpending({ data, now }: CommandContext, [key = '', name = '', ...range]: readonly Bytes[]): Answer {
  const group = data.stream(key)?.groups.get(name);
  if (group === undefined) throw noGroup(key, name);
  let pending = group.pendingInOrder();
  if (range.length === 0) {
    if (pending.length === 0) return [0, null, null, null];
    const byConsumer = new Map<Bytes, number>();
    for (const { consumer } of pending) byConsumer.set(consumer, (byConsumer.get(consumer) ?? 0) + 1);
    const counts = [...byConsumer].map(([consumer, count]) => [consumer, String(count)]);
    return [pending.length, pending[0]!.id, pending.at(-1)!.id, counts];
  }
  let rest = range;
  if (rest[0]?.toUpperCase() === 'IDLE') {
    const least = integer(rest[1]);
    pending = pending.filter(({ deliveredAt }) => now() - deliveredAt >= least);
    rest = rest.slice(2);
  }
  const [start = '-', end = '+', count, consumer] = rest;
  return pending
    .filter(({ id }) => compareStreamIds(id, firstOf(start)) >= 0 && compareStreamIds(id, lastOf(end)) <= 0)
    .filter((each) => consumer === undefined || each.consumer === consumer)
    .slice(0, count === undefined ? undefined : integer(count))
    .map((each) => [each.id, each.consumer, Math.max(0, now() - each.deliveredAt), each.deliveries]);
}

function xclaim({ data, now }: CommandContext, args: readonly Bytes[]): Answer {
  const [key = '', name = '', consumer = '', minIdle = '0', ...rest] = args;
  const stream = data.stream(key);
  const group = stream?.groups.get(name);
  if (stream === undefined || group === undefined) throw noGroup(key, name);
  const options = rest.filter((arg) => !/^\d+(-\d+)?$/.test(arg)).map((arg) => arg.toUpperCase());
  const isJustId = options.includes('JUSTID');
  const claimed: PendingEntry[] = [];
  for (const id of rest.filter((arg) => /^\d+-\d+$/.test(arg))) {
    const pending = group.pending.get(id);
    if (pending === undefined || now() - pending.deliveredAt < integer(minIdle)) continue;
    if (stream.get(id) === undefined) {
      group.pending.delete(id);
      continue;
    }
    pending.consumer = consumer;
    pending.deliveredAt = now();
    if (!isJustId) pending.deliveries++;
    claimed.push(pending);
  }
  group.consumers.add(consumer);
  return claimed.map(({ id }) => (isJustId ? id : toAnswer(stream.get(id)!)));
}

function xinfo({ data, now }: CommandContext, [what = '', key = '', name = '']: readonly Bytes[]): Answer {
  const stream = data.stream(key);
  if (stream === undefined) throw new ReplyError('ERR no such key');
  switch (what.toUpperCase()) {
    case 'STREAM':
      return [
        ['length', stream.entries.length],
        ['last-generated-id', stream.lastId],
        ['max-deleted-entry-id', stream.maxDeletedId],
        ['entries-added', stream.entriesAdded],
        ['recorded-first-entry-id', stream.entries[0]?.id ?? '0-0'],
        ['groups', stream.groups.size],
        ['first-entry', stream.entries[0] === undefined ? null : toAnswer(stream.entries[0])],
        ['last-entry', stream.entries.length === 0 ? null : toAnswer(stream.entries.at(-1)!)],
      ].flat(1) as Answer;
    case 'GROUPS':
      return [...stream.groups].map(([groupName, group]) => {
        const lag = stream.after(group.lastDelivered).length;
        return [
          'name',
          groupName,
          'consumers',
          group.consumers.size,
          'pending',
          group.pending.size,
          'last-delivered-id',
          group.lastDelivered,
          'entries-read',
          stream.entriesAdded - lag,
          'lag',
          lag,
        ];
      });
    case 'CONSUMERS': {
      const group = stream.groups.get(name);
      if (group === undefined) throw noGroup(key, name);
      return [...group.consumers].map((consumer) => {
        const theirs = [...group.pending.values()].filter((each) => each.consumer === consumer);
        const idle = Math.min(...theirs.map(({ deliveredAt }) => now() - deliveredAt), 0);
        return ['name', consumer, 'pending', theirs.length, 'idle', idle, 'inactive', idle];
      });
    }
    default:
      throw new ReplyError(`ERR unknown subcommand '${what}'. Try XINFO HELP.`);
  }
}

function noGroup(key: Bytes, group: Bytes): ReplyError {
  return new ReplyError(`NOGROUP No such key '${key}' or consumer group '${group}'`);
}

function toAnswer({ id, fields }: StreamEntry): Answer {
  return [id, [...fields]];
}

function countOf(options: readonly Bytes[]): number | undefined {
  const at = options.findIndex((option) => option.toUpperCase() === 'COUNT');
  return at < 0 ? undefined : integer(options[at + 1]);
}

function wholeId(id: Bytes, sequence: string): string {
  if (!/^\d+(-\d+)?$/.test(id)) throw new ReplyError('ERR Invalid stream ID specified as stream command argument');
  return id.includes('-') ? id : `${id}-${sequence}`;
}

function firstOf(start: Bytes): string {
  if (start === '-') return '0-0';
  if (start === '+') return MAX_ID;
  return start.startsWith('(') ? nextStreamId(wholeId(start.slice(1), '0')) : wholeId(start, '0');
}

function lastOf(end: Bytes): string {
  if (end === '+') return MAX_ID;
  if (end === '-') return '0-0';
  return end.startsWith('(') ? previousStreamId(wholeId(end.slice(1), '0')) : wholeId(end, '18446744073709551615');
}

import { createHash } from 'node:crypto';
import type { Clock, Timer } from '../../core/clock.js';
import { keyCommands, type CommandContext, type CommandHandler } from './key-commands.js';
import { Keyspace } from './keyspace.js';
import { LuaScripts } from './lua.js';
import { readGroup, streamCommands } from './stream-commands.js';
import { integer, OK, ReplyError, Status, type Answer, type Bytes } from './values.js';

/** Who hears what is published; a client. */
export interface Subscriber {
  readonly hear: (channel: Bytes, message: Bytes) => void;
}

interface Waiting {
  readonly owner: object;
  readonly args: readonly Bytes[];
  readonly timer: Timer | undefined;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

/**
 * As much of a Redis as the queue uses, in memory: the commands of `redis/needed-commands.ts`, and the queue's own Lua. One
 * thread, as Redis: a command or script runs to its end before the next.
 */
export class MemoryServer {
  readonly data: Keyspace;
  /** Commands that have been run, those inside scripts not counted: it stands still when nobody works. */
  commandCount = 0;
  private readonly context: CommandContext;
  private readonly lua: LuaScripts;
  private readonly scripts = new Map<string, string>();
  private readonly waiting = new Set<Waiting>();
  private readonly subscribers = new Map<Bytes, Set<Subscriber>>();
  private readonly handlers: Readonly<Record<string, CommandHandler>> = {
    ...keyCommands,
    ...streamCommands,
    XREADGROUP: (context, args) => readGroup(context, args).answer,
    PING: () => new Status('PONG'),
    TIME: ({ now }) => [String(Math.floor(now() / 1_000)), String(Math.round((now() % 1_000) * 1_000))],
    INFO: ({ data }, sections) => infoOf(data, sections),
    PUBLISH: (_, [channel = '', message = '']) => this.publish(channel, message),
    // As many as are asked for: what is stored here is never lost.
    WAIT: (_, [replicas]) => integer(replicas),
    // About as much as its text.
    MEMORY: ({ data }, [, key = '']) => (data.has(key) ? data.sizeOf(key) : null),
    EVAL: (_, [source = '', ...rest]) => {
      this.scripts.set(createHash('sha1').update(Buffer.from(source, 'latin1')).digest('hex'), source);
      return this.eval(source, rest);
    },
    EVALSHA: (_, [sha = '', ...rest]) => {
      const source = this.scripts.get(sha);
      if (source === undefined) throw new ReplyError('NOSCRIPT No matching script. Please use EVAL.');
      return this.eval(source, rest);
    },
    SUBSCRIBE: () => OK,
  };

  constructor(private readonly clock: Clock) {
    const now = (): number => clock.now();
    this.data = new Keyspace(now);
    this.context = { data: this.data, now };
    this.lua = new LuaScripts((name, args) => this.run(name, args));
  }

  /** Runs one command. A read that waits answers later. */
  async execute(owner: object, name: string, args: readonly Bytes[]): Promise<Answer> {
    this.commandCount++;
    const command = name.toUpperCase();
    if (command === 'XREADGROUP') {
      const { answer, blockMs } = readGroup(this.context, args);
      if (answer !== null || blockMs === null) return answer;
      return new Promise((resolve, reject) => this.wait(owner, args, blockMs, resolve, reject));
    }
    try {
      return this.run(command, args);
    } finally {
      this.serveWaiting();
    }
  }

  subscribe(channel: Bytes, subscriber: Subscriber): void {
    const all = this.subscribers.get(channel) ?? new Set();
    this.subscribers.set(channel, all.add(subscriber));
  }

  /** The client is gone: nothing is published to it, and its read is not answered any more. */
  forget(owner: object & Subscriber): void {
    for (const all of this.subscribers.values()) all.delete(owner);
    for (const each of this.waiting) {
      if (each.owner !== owner) continue;
      this.leave(each);
      each.reject(new Error('Connection is closed.'));
    }
  }

  private run(name: string, args: readonly Bytes[]): Answer {
    const handler = this.handlers[name];
    if (handler === undefined) {
      throw new ReplyError(`ERR unknown command '${name}': the in-memory server of the tests does not have it`);
    }
    return handler(this.context, args);
  }

  private eval(source: Bytes, [count, ...rest]: readonly Bytes[]): Answer {
    const keys = integer(count);
    return this.lua.run(source, rest.slice(0, keys), rest.slice(keys));
  }

  private publish(channel: Bytes, message: Bytes): number {
    const all = this.subscribers.get(channel) ?? new Set();
    for (const subscriber of all) subscriber.hear(channel, message);
    return all.size;
  }

  private wait(
    owner: object,
    args: readonly Bytes[],
    blockMs: number,
    resolve: Waiting['resolve'],
    reject: Waiting['reject'],
  ): void {
    const end = (): void => {
      this.leave(each);
      resolve(null);
    };
    const timer = blockMs === 0 ? undefined : this.clock.setTimer(end, blockMs);
    const each: Waiting = { owner, args, timer, resolve, reject };
    this.waiting.add(each);
  }

  private leave(each: Waiting): void {
    this.waiting.delete(each);
    each.timer?.cancel();
  }

  private serveWaiting(): void {
    for (const each of this.waiting) {
      try {
        const { answer } = readGroup(this.context, each.args);
        if (answer === null) continue;
        this.leave(each);
        each.resolve(answer);
      } catch (error) {
        this.leave(each);
        each.reject(error as Error);
      }
    }
  }
}

/** The sections that are named, or all: as much as the queue asks for. */
function infoOf(data: Keyspace, names: readonly Bytes[]): Bytes {
  const usedMemory = data.keys.reduce((sum, key) => sum + data.sizeOf(key), 0);
  const sections: Readonly<Record<string, readonly string[]>> = {
    server: ['redis_version:7.4.0'],
    memory: [`used_memory:${usedMemory}`, 'maxmemory:0', 'maxmemory_policy:noeviction'],
    stats: ['evicted_keys:0'],
  };
  const asked = names.length === 0 ? Object.keys(sections) : names.map((name) => name.toLowerCase());
  return asked.flatMap((name) => sections[name] ?? []).reduce((text, line) => `${text}${line}\r\n`, '');
}

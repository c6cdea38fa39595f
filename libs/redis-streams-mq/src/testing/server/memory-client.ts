import { EventEmitter } from 'node:events';
import type { Client } from '../../redis/connection.js';
import { asText, type Arg, type Reply } from '../../redis/reply.js';
import type { MemoryServer, Subscriber } from './memory-server.js';
import { ReplyError, Status, toBytes, type Answer, type Bytes } from './values.js';

/** A client of the in-memory server with what the queue uses of ioredis'. */
export class MemoryClient extends EventEmitter implements Subscriber {
  readonly isCluster = false;
  status: 'wait' | 'ready' | 'end' = 'wait';
  private killed = false;

  constructor(private readonly server: MemoryServer) {
    super();
  }

  /** For whoever takes a client of ioredis. */
  asClient(): Client {
    return this as unknown as Client;
  }

  async connect(): Promise<void> {
    if (this.killed) throw new Error('connect ECONNREFUSED');
    if (this.status === 'ready') return;
    await Promise.resolve();
    this.status = 'ready';
    this.emit('connect');
    this.emit('ready');
  }

  disconnect(): void {
    if (this.status === 'end') return;
    this.status = 'end';
    this.server.forget(this);
    this.emit('close');
    this.emit('end');
  }

  /** The process is dead: it never connects again, and hears no answer. */
  kill(): void {
    this.killed = true;
    this.disconnect();
  }

  async callBuffer(name: string, ...args: Arg[]): Promise<Reply> {
    if (this.status !== 'ready') throw new Error('Connection is closed.');
    const answer = await this.server.execute(this, name, args.map(toBytes));
    if (this.killed) throw new Error('Connection is closed.');
    return toReply(answer);
  }

  pipeline(): { callBuffer(name: string, ...args: Arg[]): void; exec(): Promise<[Error | null, Reply][]> } {
    const commands: [string, Arg[]][] = [];
    return {
      callBuffer: (name, ...args) => void commands.push([name, args]),
      exec: async () => {
        const running = commands.map(([name, args]) => this.callBuffer(name, ...args));
        const settled = await Promise.allSettled(running);
        if (this.killed) throw new Error('Connection is closed.');
        return settled.map((each) => (each.status === 'fulfilled' ? [null, each.value] : [each.reason as Error, null]));
      },
    };
  }

  async info(...sections: string[]): Promise<string> {
    return asText(await this.callBuffer('INFO', ...sections));
  }

  async subscribe(channel: string): Promise<number> {
    this.server.subscribe(toBytes(channel), this);
    return 1;
  }

  readonly hear = (channel: Bytes, message: Bytes): void => {
    queueMicrotask(() => this.emit('messageBuffer', Buffer.from(channel, 'latin1'), Buffer.from(message, 'latin1')));
  };
}

function toReply(answer: Answer): Reply {
  if (typeof answer === 'string') return Buffer.from(answer, 'latin1');
  if (answer instanceof Status) return Buffer.from(answer.text, 'latin1');
  if (answer === null || typeof answer === 'number' || answer instanceof ReplyError) return answer;
  return answer.map(toReply);
}

import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { RespFrames } from './resp-frames.js';

/**
 * What happens to the next request that matches: its reply is replaced, or lost together with the connection, or the
 * request itself is.
 */
export interface Trap {
  matches(request: Buffer): boolean;
  losesRequest?: boolean;
  answer?: Buffer;
  sprung(): void;
}

/** What the test has ordered; shared by all connections of a proxy. */
export interface Faults {
  blackhole: boolean;
  replyDelayMs: number;
  traps: Trap[];
  cutOnReply: { matches(reply: Buffer): boolean; sprung(): void }[];
}

/** One connection through the proxy. Replies are matched to requests by counting, as Redis answers in order. */
export class ProxyLink {
  private readonly requests = new RespFrames();
  private readonly replies = new RespFrames();
  private readonly sprungAt = new Map<number, Trap>();
  private request: Buffer[] = [];
  private replacing = false;
  private delivery: Promise<void> = Promise.resolve();
  private hasLostBytes = false;
  /** What the client calls itself by CLIENT SETNAME. */
  private clientName = '';

  constructor(
    private readonly client: Socket,
    private readonly server: Socket,
    private readonly faults: Faults,
    private readonly onClose: (link: ProxyLink) => void,
  ) {
    for (const socket of [client, server]) socket.setNoDelay(true).on('error', () => {});
    client.on('data', (chunk) => this.isSwallowed() || this.forward(chunk));
    server.on('data', (chunk) => this.isSwallowed() || this.deliverLater(chunk));
    client.on('close', () => this.cut());
    server.on('close', () => {
      this.delivery = this.delivery.then(() => this.finish());
    });
  }

  /** Ends both sides at once. */
  cut(): void {
    this.client.destroy();
    this.server.destroy();
    this.onClose(this);
  }

  /** Ends the client's side after what was already written to it. */
  private finish(): void {
    this.client.destroySoon();
    this.server.destroy();
    this.onClose(this);
  }

  /** From now on no byte comes through, while both sockets stay open; only where the client has that in its name. */
  silence(name: string): boolean {
    if (this.clientName.includes(name)) this.hasLostBytes = true;
    return this.hasLostBytes;
  }

  /** A stream that has a hole can never be used again: such a connection stays dead when the black hole ends. */
  private isSwallowed(): boolean {
    this.hasLostBytes ||= this.faults.blackhole;
    return this.hasLostBytes;
  }

  private forward(chunk: Buffer): void {
    const whole: Buffer[] = [];
    let part: Buffer[] = [];
    for (const piece of this.requests.feed(chunk)) {
      this.request.push(piece.bytes);
      part.push(piece.bytes);
      if (!piece.ends) continue;
      if (this.arm(piece.index, Buffer.concat(this.request))?.losesRequest) return this.cutBehind(whole);
      whole.push(...part);
      part = [];
      this.request = [];
    }
    this.server.write(chunk);
  }

  /** The server gets what was asked before, and the client hears no answer to that either. */
  private cutBehind(requests: readonly Buffer[]): void {
    this.server.end(Buffer.concat(requests));
    this.client.destroy();
    this.onClose(this);
  }

  private arm(index: number, request: Buffer): Trap | undefined {
    const name = /\r\nsetname\r\n\$\d+\r\n(\S+)/i.exec(request.toString('latin1', 0, 300))?.[1];
    this.clientName = name ?? this.clientName;
    const at = this.faults.traps.findIndex((trap) => trap.matches(request));
    const [trap] = at < 0 ? [] : this.faults.traps.splice(at, 1);
    if (trap?.losesRequest) trap.sprung();
    else if (trap) this.sprungAt.set(index, trap);
    return trap;
  }

  private deliverLater(chunk: Buffer): void {
    const dueAt = performance.now() + this.faults.replyDelayMs;
    this.delivery = this.delivery.then(async () => {
      const wait = dueAt - performance.now();
      if (wait > 0) await sleep(wait);
      this.deliver(chunk);
    });
  }

  private deliver(chunk: Buffer): void {
    if (this.client.destroyed) return;
    const at = this.faults.cutOnReply.findIndex((order) => order.matches(chunk));
    if (at >= 0) {
      this.faults.cutOnReply.splice(at, 1)[0]?.sprung();
      return this.cut();
    }
    for (const piece of this.replies.feed(chunk)) {
      const trap = this.sprungAt.get(piece.index);
      if (trap && piece.begins) {
        this.replacing = true;
        trap.sprung();
        if (!trap.answer) return this.finish();
        this.client.write(trap.answer);
      }
      if (!trap || !this.replacing) this.client.write(piece.bytes);
      if (trap && piece.ends) this.replacing = false;
    }
  }
}

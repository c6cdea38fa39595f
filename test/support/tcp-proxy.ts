import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { type Faults, ProxyLink } from './proxy-link.js';
import { deferred } from './wait-for.js';

/** A proxy on the loopback between a client and its Redis that does to the traffic what networks do. */
export class TcpProxy {
  private readonly links = new Set<ProxyLink>();
  private readonly faults: Faults = { blackhole: false, replyDelayMs: 0, traps: [], cutOnReply: [] };
  private listener: Server | undefined;

  /** Where clients connect to. */
  port = 0;

  /** Use `startProxy`. */
  constructor(private targetPort: number) {}

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** How many connections are open now. */
  connections(): number {
    return this.links.size;
  }

  /** Ends every open connection; new ones are served. */
  cutAll(): void {
    for (const link of this.links) link.cut();
  }

  /** Refuses new connections (nothing listens any more), or takes them again. Open ones go on. */
  async refuse(on: boolean): Promise<void> {
    if (!on) return this.listen();
    this.listener?.close();
    this.listener = undefined;
  }

  /**
   * Swallows all bytes both ways while the sockets stay open. A connection that lost bytes stays dead afterwards, for its
   * stream has a hole; new connections work.
   */
  blackhole(on: boolean): void {
    this.faults.blackhole = on;
  }

  /** The same for the open connections of clients with that in their CLIENT SETNAME, for ever; says how many they are. */
  silence(name: string): number {
    return [...this.links].filter((link) => link.silence(name)).length;
  }

  /** Holds each reply back this long, in order; 0 ends it. */
  delayReplies(ms: number): void {
    this.faults.replyDelayMs = ms;
  }

  /** Sends new connections to another server, as a moved primary endpoint does; open ones stay. */
  pointTo(targetPort: number): void {
    this.targetPort = targetPort;
  }

  /**
   * Cuts the connection on which the next matching reply bytes (a chunk, not a whole reply) arrive, before any of them is
   * passed on. Once; resolves when it has happened.
   */
  cutOnReply(matches: (bytes: Buffer) => boolean): Promise<void> {
    const done = deferred();
    this.faults.cutOnReply.push({ matches, sprung: () => done.resolve() });
    return done.promise;
  }

  /**
   * Lets the next matching request through, passes the replies before its own, withholds exactly its reply and cuts that
   * connection: the server has done it and nobody heard. Once; resolves when it has happened. Not for connections that
   * subscribe: their messages answer no request.
   */
  dropNextReplyMatching(matches: (request: Buffer) => boolean): Promise<void> {
    const done = deferred();
    this.faults.traps.push({ matches, sprung: () => done.resolve() });
    return done.promise;
  }

  /** Cuts the connection before the next matching request reaches the server. Once; resolves when it has happened. */
  dropNextRequestMatching(matches: (request: Buffer) => boolean): Promise<void> {
    const done = deferred();
    this.faults.traps.push({ matches, losesRequest: true, sprung: () => done.resolve() });
    return done.promise;
  }

  /** As `dropNextReplyMatching`, but gives the client this reply (RESP bytes) instead, and the connection goes on. */
  answerNextMatching(matches: (request: Buffer) => boolean, reply: string): Promise<void> {
    const done = deferred();
    this.faults.traps.push({ matches, answer: Buffer.from(reply), sprung: () => done.resolve() });
    return done.promise;
  }

  async stop(): Promise<void> {
    await this.refuse(true);
    this.cutAll();
  }

  /** Called by `startProxy`; keeps the port once it has one. */
  async listen(): Promise<void> {
    if (this.listener) return;
    this.listener = createServer((client) => this.accept(client)).listen(this.port, '127.0.0.1');
    await once(this.listener, 'listening');
    this.port = (this.listener.address() as AddressInfo).port;
  }

  private accept(client: Socket): void {
    const server = connect(this.targetPort, '127.0.0.1');
    this.links.add(new ProxyLink(client, server, this.faults, (link) => this.links.delete(link)));
  }
}

/** Starts a proxy on a free port in front of the server on `targetPort` of this machine. */
export async function startProxy(targetPort: number): Promise<TcpProxy> {
  const proxy = new TcpProxy(targetPort);
  await proxy.listen();
  return proxy;
}

/** A predicate: all these words are there, in capitals or not (ioredis sends command names in small letters). */
export function mentions(...words: string[]): (bytes: Buffer) => boolean {
  return (bytes) => {
    const text = bytes.toString('latin1').toLowerCase();
    return words.every((word) => text.includes(word.toLowerCase()));
  };
}

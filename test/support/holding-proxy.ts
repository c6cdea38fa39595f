import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { RespFrames } from './resp-frames.js';
import { deferred } from './wait-for.js';

/** A proxy that can stop in the middle of a pipeline, between two commands, as the server's read buffer does. */
export class HoldingProxy {
  private readonly sockets = new Set<Socket>();
  private hold:
    { after: number; matches: (request: Buffer) => boolean; held: () => void; released: Promise<void> } | undefined;

  private constructor(
    private readonly server: Server,
    private readonly targetPort: number,
  ) {}

  static async start(targetPort: number): Promise<HoldingProxy> {
    const server = createServer().listen(0, '127.0.0.1');
    const proxy = new HoldingProxy(server, targetPort);
    server.on('connection', (client) => proxy.accept(client));
    await once(server, 'listening');
    return proxy;
  }

  get url(): string {
    return `redis://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /**
   * Lets `after` matching requests through and then holds what follows on that connection. Once; `held` resolves when it
   * holds, and `release` lets everything pass again.
   */
  holdAfter(after: number, matches: (request: Buffer) => boolean): { held: Promise<void>; release: () => void } {
    const held = deferred();
    const released = deferred();
    this.hold = { after, matches, held: () => held.resolve(), released: released.promise };
    return { held: held.promise, release: () => released.resolve() };
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
    await once(this.server, 'close');
  }

  private accept(client: Socket): void {
    const redis = connect(this.targetPort, '127.0.0.1');
    for (const socket of [client, redis]) {
      this.sockets.add(socket);
      socket.on('error', () => undefined).on('close', () => this.sockets.delete(socket));
    }
    client.on('close', () => redis.destroy());
    redis.on('close', () => client.destroy()).on('data', (chunk) => client.write(chunk));
    const frames = new RespFrames();
    let request: Buffer[] = [];
    let forwarded: Promise<void> = Promise.resolve();
    client.on('data', (chunk) => {
      for (const piece of frames.feed(chunk)) {
        request.push(piece.bytes);
        if (!piece.ends) continue;
        const whole = Buffer.concat(request);
        request = [];
        const barrier = this.barrierAt(whole);
        forwarded = forwarded.then(() => void redis.write(whole)).then(() => barrier);
      }
    });
  }

  /** What has to happen before anything behind this request passes. */
  private barrierAt(request: Buffer): Promise<void> | undefined {
    const { hold } = this;
    if (hold === undefined || !hold.matches(request) || --hold.after > 0) return undefined;
    this.hold = undefined;
    hold.held();
    return hold.released;
  }
}

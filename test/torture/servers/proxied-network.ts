import { startProxy, type TcpProxy } from '../../support/tcp-proxy.js';
import type { Network } from './servers.js';

/** For ioredis: where a server that others call `host:port` is to be reached. */
export type NatMap = Record<string, { host: string; port: number }>;

/** The way of one child to several servers: a proxy for each of them, which all suffer the same. */
export class ProxiedNetwork implements Network {
  private constructor(
    readonly redis: Network['redis'],
    private readonly proxies: readonly TcpProxy[],
  ) {}

  /** `option` makes the module's option of the proxies' addresses, which are in the order of `ports`. */
  static async start(
    ports: readonly number[],
    option: (proxyOf: (port: number) => { host: string; port: number }, natMap: NatMap) => Network['redis'],
  ): Promise<ProxiedNetwork> {
    const proxies = await Promise.all(ports.map((port) => startProxy(port)));
    const places = new Map(ports.map((port, i) => [port, { host: '127.0.0.1', port: proxies[i]!.port }]));
    const natMap = Object.fromEntries([...places].map(([port, place]) => [`127.0.0.1:${port}`, place]));
    return new ProxiedNetwork(
      option((port) => places.get(port)!, natMap),
      proxies,
    );
  }

  /** How many connections go through it now. */
  connections(): number {
    return this.proxies.reduce((sum, proxy) => sum + proxy.connections(), 0);
  }

  cutAll(): void {
    for (const proxy of this.proxies) proxy.cutAll();
  }

  blackhole(on: boolean): void {
    for (const proxy of this.proxies) proxy.blackhole(on);
  }

  async refuse(on: boolean): Promise<void> {
    await Promise.all(this.proxies.map((proxy) => proxy.refuse(on)));
  }

  delayReplies(ms: number): void {
    for (const proxy of this.proxies) proxy.delayReplies(ms);
  }

  dropNextReplyMatching(matches: (request: Buffer) => boolean): Promise<void> {
    let taken = false;
    const once = (request: Buffer): boolean => {
      if (taken || !matches(request)) return false;
      taken = true;
      return true;
    };
    return Promise.race(this.proxies.map((proxy) => proxy.dropNextReplyMatching(once)));
  }

  async stop(): Promise<void> {
    await Promise.all(this.proxies.map((proxy) => proxy.stop()));
  }
}

import { startProxy } from '../../support/tcp-proxy.js';
import type { Network } from './servers.js';

/** The way to one server that stays where it is. */
export async function proxied(port: number): Promise<Network> {
  const proxy = await startProxy(port);
  return {
    redis: proxy.url,
    cutAll: () => proxy.cutAll(),
    blackhole: (on) => proxy.blackhole(on),
    refuse: (on) => proxy.refuse(on),
    delayReplies: (ms) => proxy.delayReplies(ms),
    dropNextReplyMatching: (matches) => proxy.dropNextReplyMatching(matches),
    stop: () => proxy.stop(),
  };
}

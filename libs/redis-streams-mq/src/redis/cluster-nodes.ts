import type { Cluster, Redis } from 'ioredis';
import { within, type Clock } from '../core/clock.js';

/** Longer than a connection takes to a node that is there; what is sent to others waits no longer for one that is not. */
const PATIENCE_MS = 500;

/**
 * Connects the masters of a Cluster when they become known. ioredis would do it with the first command for a node, and
 * refuse all further ones until that connection is ready: after each start, failover and move of slots.
 */
export class ClusterNodes {
  private readonly connecting = new Set<Promise<unknown>>();

  constructor(
    cluster: Cluster,
    private readonly clock: Clock,
  ) {
    const connectAll = (): void => cluster.nodes('master').forEach((node) => this.connect(node));
    // A master that is new, and a replica that is master now.
    cluster.on('+node', connectAll).on('refresh', connectAll);
  }

  get isSettled(): boolean {
    return this.connecting.size === 0;
  }

  /** Resolves when the masters that became known last are connected, or have had their time. */
  async settled(): Promise<void> {
    await Promise.all(this.connecting);
  }

  private connect(node: Redis): void {
    if (node.status !== 'wait') return;
    const tried = within(this.clock, node.connect(), PATIENCE_MS).finally(() => this.connecting.delete(tried));
    this.connecting.add(tried);
  }
}

import { Command, type Cluster, type ClusterOptions, type Redis } from 'ioredis';
import type { Clock } from '../core/clock.js';
import type { MqEvents } from '../core/events.js';
import { Connection, type Client } from './connection.js';
import { createClient } from './create-client.js';
import { wasNotSent } from './redis-errors.js';
import type { RedisOption } from './redis-option.js';

/** Makes a client that is not yet connected; see `createClient`. */
export type CreateClient = typeof createClient;

export interface ConnectionsDeps {
  readonly redis: RedisOption | undefined;
  /** @defaultValue clients of ioredis */
  readonly createClient?: CreateClient | undefined;
  readonly clock: Clock;
  readonly events: MqEvents;
  /** An answer later than this means that the socket is dead, in milliseconds. */
  readonly redisTimeoutMs: number;
  /** The same for the connection of leases: a dead one has to be replaced while their trust lasts. */
  readonly controlTimeoutMs: number;
  /** Shows in CLIENT LIST. */
  readonly clientName: string;
  /** Sends get a connection of their own: those that wait for replicas would hold up everything behind them. */
  readonly ownProducerConnection: boolean;
}

const REVIVE_MS = 500;
const TOO_MANY = 'ERR max number of clients reached';

/**
 * Every connection of one module instance. `command` carries sends, settles and reads that do not block; `control`
 * carries renewals and heartbeats, so that no burst delays them; `subscriber` hears announcements. Readers get one each.
 * Nothing connects before `open()`.
 */
export class Connections {
  readonly command: Connection;
  readonly control: Connection;
  readonly subscriber: Connection;
  readonly producer: Connection;
  private readonly all = new Set<Connection>();
  private readonly detachers = new Map<Connection, () => void>();
  private opened = false;
  private closed = false;

  constructor(private readonly deps: ConnectionsDeps) {
    this.command = this.make('command', deps.redisTimeoutMs);
    this.control = this.make('control', deps.controlTimeoutMs);
    this.subscriber = this.make('announcements', null);
    // WAIT answers within its own time limit, which is below `redisTimeoutMs`.
    this.producer = deps.ownProducerConnection ? this.make('producer', deps.redisTimeoutMs) : this.command;
  }

  get isCluster(): boolean {
    return this.command.client.isCluster;
  }

  /** Begins to connect and to reconnect for ever; does not wait. */
  open(): void {
    if (this.opened || this.closed) return;
    this.opened = true;
    for (const connection of this.all) connect(connection.client);
  }

  /** A connection of its own for reads that block, to the node that serves `key` in Cluster. Connects at once. */
  openReader(name: string, key: string): Connection {
    const connection = this.isCluster ? this.makeForKey(name, key) : this.make(name, null);
    connect(connection.client);
    return connection;
  }

  /** Closes one connection that `openReader` made. */
  discard(connection: Connection): void {
    this.all.delete(connection);
    this.detachers.get(connection)?.();
    this.detachers.delete(connection);
    connection.destroy();
  }

  close(): void {
    this.closed = true;
    for (const connection of this.all) this.discard(connection);
  }

  private make(name: string, timeoutMs: number | null): Connection {
    const { redis, clientName, createClient: make = createClient } = this.deps;
    return this.adopt(name, make(redis, timeoutMs, `${clientName}:${name}`));
  }

  /** A reader has found that ioredis does not know who serves its slot: it is to ask now, and not at its next turn. */
  slotsMoved(): void {
    if (this.isCluster) (this.command.client as Cluster).refreshSlotsCache();
  }

  private makeForKey(name: string, key: string): Connection {
    const cluster = this.command.client as Cluster;
    const masters = cluster.nodes('master');
    const owner = cluster.slots[new Command('GET', [key]).getSlot()]?.[0];
    const place = owner === undefined ? undefined : mapped(owner, cluster.options.natMap);
    const node = masters.find((m) => `${m.options.host}:${m.options.port}` === place) ?? masters[0];
    if (node === undefined) return this.make(name, null);
    const { host, port } = node.options;
    const option = { ...cluster.options.redisOptions, host, port } as RedisOption;
    return this.adopt(name, createClient(option, null, `${this.deps.clientName}:${name}`));
  }

  private adopt(name: string, client: Client): Connection {
    const connection = new Connection(name, client, this.deps.clock);
    const { events } = this.deps;
    const onReady = (): void => {
      connection.failure = undefined;
      events.emit('connection', { name, state: 'ready' });
    };
    const onClose = (): void => events.emit('connection', { name, state: 'closed' });
    // Without a listener ioredis prints each attempt; it must stay until the client is gone for good.
    const onError = (error: unknown): void => {
      // What is refused because of the failure says nothing about it.
      if (!wasNotSent(error)) connection.failure = error;
      // ioredis would go on with database 0.
      if (commandOf(error) === 'select') client.disconnect(true);
      if (!connection.isDestroyed) events.emit('connection', { name, state: 'error', error });
    };
    // ioredis gives up for good when a disconnect of its own meets a connect that is under way.
    const onEnd = (): void => {
      if (!connection.isDestroyed) this.deps.clock.setTimer(() => connection.isDestroyed || connect(client), REVIVE_MS);
    };
    // Said instead of an answer to the first command, which ioredis drops.
    const onConnect = (): void => {
      (client as Partial<Redis>).stream?.once('data', (bytes: Buffer) => {
        if (bytes.toString('latin1', 0, TOO_MANY.length + 1) === `-${TOO_MANY}`) onError(new Error(TOO_MANY));
      });
    };
    const emitter = client as Redis;
    // In an outage each partition waits for `ready`: many listeners are no leak.
    emitter.setMaxListeners(0);
    emitter.on('ready', onReady).on('close', onClose).on('error', onError).on('end', onEnd).on('connect', onConnect);
    this.detachers.set(connection, () =>
      emitter.off('ready', onReady).off('close', onClose).off('end', onEnd).off('connect', onConnect),
    );
    this.all.add(connection);
    return connection;
  }
}

function connect(client: Client): void {
  // A failed first attempt is retried by ioredis and reported through the error listener.
  client.connect().catch(() => undefined);
}

/** The command that an error reply answers. */
function commandOf(error: unknown): string | undefined {
  return (error as { command?: { name?: string } } | undefined)?.command?.name;
}

/** Where a node is reached. After a redirection ioredis keeps what the servers call it. */
function mapped(nodeKey: string, natMap: ClusterOptions['natMap']): string {
  const place = typeof natMap === 'function' ? natMap(nodeKey) : natMap?.[nodeKey];
  return place ? `${place.host}:${place.port}` : nodeKey;
}

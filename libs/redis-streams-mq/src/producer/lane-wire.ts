import type { Keys } from '../core/keys.js';
import type { Command, Connection } from '../redis/connection.js';
import { asNumber, asText, type Outcome, type Reply } from '../redis/reply.js';
import { call, type ScriptCall } from '../redis/script.js';
import { schedule, sendOnce, type ScheduleReply, type SendOnceReply } from '../redis/scripts/send.script.js';
import type { PreparedMessage } from './outgoing-message.js';

export interface StoredResult {
  /** Id of the entry; `null` for a message that is stored later. */
  readonly id: string | null;
  readonly duplicate: boolean;
}

/** `replicas`: how many have it; `null` when that was not asked for. */
export type WireResult = StoredResult & { readonly replicas: number | null };

export interface LaneWireDeps {
  readonly topic: string;
  readonly partition: number;
  readonly connection: Connection;
  readonly keys: Keys;
  /** Asks for copies on that many replicas after each batch; 0 asks for none. */
  readonly waitReplicas: number;
  readonly waitReplicasTimeoutMs: number;
  readonly incarnation: () => string;
}

/** Messages of one partition as commands, and what Redis answers to each: `null` when the topic's stream is not there. */
export class LaneWire {
  private readonly stream: string;

  constructor(private readonly deps: LaneWireDeps) {
    this.stream = deps.keys.stream(deps.topic, deps.partition);
  }

  /** The messages are of one kind of delivery. Rejects when nothing was sent. */
  transmit(batch: readonly PreparedMessage[]): Promise<Outcome<WireResult | null>[]> {
    return batch[0]!.delivery.kind === 'now' ? this.add(batch) : this.runScripts(batch);
  }

  private async add(batch: readonly PreparedMessage[]): Promise<Outcome<WireResult | null>[]> {
    const commands: Command[] = batch.map(({ fields }) => ['XADD', this.stream, 'NOMKSTREAM', '*', ...fields]);
    if (this.asksForReplicas) commands.push(this.wait);
    const replies = await this.deps.connection.pipeline(commands);
    const replicas = this.asksForReplicas ? replicaCount(replies.pop()) : null;
    return replies.map((reply) => {
      if (!reply.ok) return reply;
      return { ok: true, value: reply.value === null ? null : { id: asText(reply.value), duplicate: false, replicas } };
    });
  }

  private async runScripts(batch: readonly PreparedMessage[]): Promise<Outcome<WireResult | null>[]> {
    const outcomes = await this.deps.connection.runInOrder(batch.map((message) => this.scriptFor(message)));
    const replicas = this.asksForReplicas ? await this.askForReplicas() : null;
    return outcomes.map((outcome) => {
      if (!outcome.ok) return outcome;
      const reply = outcome.value;
      if (reply.status === 'gone') return { ok: true, value: null };
      if (reply.status === 'scheduled' && reply.earliest) this.announceDue(reply.due);
      const id = reply.status === 'stored' ? reply.id : null;
      return { ok: true, value: { id, duplicate: reply.duplicate, replicas } };
    });
  }

  private scriptFor({ delivery, fields, wireEventId }: PreparedMessage): ScriptCall<SendOnceReply | ScheduleReply> {
    const { topic, partition, keys, incarnation } = this.deps;
    if (delivery.kind === 'once') {
      const dedup = keys.dedup(topic, partition, delivery.dedupId);
      return call(
        sendOnce,
        { stream: this.stream, dedup },
        { incarnation: incarnation(), ttl: delivery.ttlMs },
        fields,
      );
    }
    const { mode, when } = delivery as Extract<typeof delivery, { kind: 'later' }>;
    return call(schedule, keys.partition(topic, partition), { eventId: wireEventId, mode, when }, fields);
  }

  private announceDue(due: number): void {
    const { topic, partition, connection, keys } = this.deps;
    const announcement = JSON.stringify({ type: 'due', topic, partition, group: null, due });
    connection.send('PUBLISH', keys.announcements, announcement).catch(() => undefined); // The mover's tick is the net.
  }

  private get asksForReplicas(): boolean {
    return this.deps.waitReplicas > 0;
  }

  private get wait(): Command {
    return ['WAIT', this.deps.waitReplicas, this.deps.waitReplicasTimeoutMs];
  }

  /** How many replicas have what this connection has seen stored; 0 when that cannot be learned. */
  async askForReplicas(): Promise<number> {
    try {
      // EXISTS only names a key, by which the pipeline finds its node in Cluster.
      return replicaCount((await this.deps.connection.pipeline([['EXISTS', this.stream], this.wait]))[1]);
    } catch {
      return 0;
    }
  }
}

function replicaCount(reply: Outcome<Reply> | undefined): number {
  return reply?.ok ? asNumber(reply.value) : 0;
}

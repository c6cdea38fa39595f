import type { Clock } from '../core/clock.js';
import type { MqEventMap, MqEventName, MqEvents } from '../core/events.js';
import { LogLimiter } from './log-limiter.js';
import type { LogFields, MqLogger } from './mq-logger.js';

const INTERVAL_MS = 5_000;
type Level = keyof MqLogger;

/**
 * Tells the log what a person should know of what the engine says. Payloads and credentials never appear, and whatever
 * can repeat is limited to one line per subject in five seconds, which then counts the others as `suppressed`.
 */
export class LogListener {
  private readonly limiter: LogLimiter;
  /** Components whose fault was logged, and that have not been reported as recovered. */
  private readonly faulty = new Set<string>();
  /** Connections whose trouble was logged, and that have not been ready since. */
  private readonly disconnected = new Set<string>();
  private readonly undo: (() => void)[] = [];

  constructor(
    private readonly events: MqEvents,
    private readonly logger: MqLogger,
    clock: Clock,
  ) {
    this.limiter = new LogLimiter(clock, INTERVAL_MS);
  }

  start(): void {
    if (this.undo.length > 0) return;
    this.listenToTrouble();
    this.listenToConnections();
    this.listenToMessages();
    this.listenToOwnership();
    this.listenToTopics();
  }

  stop(): void {
    for (const undo of this.undo.splice(0)) undo();
  }

  private listenToTrouble(): void {
    this.on('fault', ({ component, class: faultClass, error, retryInMs }) => {
      const level = faultClass === 'transient' || faultClass === 'key' ? 'warn' : 'error';
      const fields = { component, class: faultClass, error, retryInMs };
      const wasLogged = this.limited(
        level,
        `fault ${component}`,
        'a part of the queue failed and will try again',
        fields,
      );
      if (wasLogged) this.faulty.add(component);
    });
    this.on('recovered', ({ component, afterMs }) => {
      if (!this.faulty.delete(component)) return;
      this.logger.log('a part of the queue recovered', { component, afterMs });
    });
    this.on('warning', ({ message, fields }) => this.limited('warn', `warning ${message}`, message, fields));
    this.on('readerReplaced', ({ group, reason }) =>
      this.limited('warn', `reader ${group}`, 'a reader was replaced by a new connection', { group, reason }),
    );
    this.on('sendFailed', ({ topic, code }) =>
      this.limited('warn', `send ${topic} ${code}`, 'a message could not be sent', { topic, code }),
    );
  }

  private listenToConnections(): void {
    this.on('connection', ({ name, state, error }) => {
      if (state === 'ready') {
        const wasLost = this.disconnected.delete(name);
        this.logger[wasLost ? 'log' : 'debug']('connected to Redis', { connection: name });
        return;
      }
      // An attempt that fails says both, a lost connection only `closed`; our own closing says nothing.
      const fields = { connection: name, error };
      const wasLogged = this.limited('warn', `connection ${name}`, 'the connection to Redis is lost or failed', fields);
      if (wasLogged) this.disconnected.add(name);
    });
  }

  private listenToMessages(): void {
    this.on('retried', ({ topic, partition, group, id, attempt, delayMs, error }) =>
      this.limited('warn', `retried ${topic} ${group}`, 'a handler failed, the message is retried', {
        topic,
        partition,
        group,
        id,
        attempt,
        delayMs,
        error,
      }),
    );
    this.on('dead', ({ topic, partition, group, id, attempt, reason, error }) =>
      this.limited('error', `dead ${topic} ${group} ${reason}`, 'a message became a dead letter', {
        topic,
        partition,
        group,
        id,
        attempt,
        reason,
        // What a parser or a validator says quotes the payload; the dead letter itself has it.
        error: reason === 'malformed' || reason === 'validation' ? nameOf(error) : error,
      }),
    );
    this.on('payloadMissing', ({ topic, partition, group, ids }) =>
      this.limited(
        'warn',
        `missing ${topic} ${group}`,
        'messages were deleted from the stream before they were handled',
        { topic, partition, group, count: ids.length, firstId: ids[0] },
      ),
    );
    this.on('moved', ({ topic, partition, group, bad }) => {
      if (bad.length === 0) return;
      const fields = { topic, partition, group, count: bad.length, firstId: bad[0] };
      this.limited('error', `bad ${topic}`, 'damaged retries or delayed messages were set aside', fields);
    });
    this.on('trimmed', ({ topic, partition, byHardBound }) => {
      if (byHardBound === 0) return;
      const fields = { topic, partition, count: byHardBound };
      this.limited(
        'error',
        `hard ${topic}`,
        'messages beyond the hard bound were deleted before all groups had them',
        fields,
      );
    });
    this.on('retentionAbandoned', (event) =>
      this.limited(
        'error',
        `abandoned ${event.topic} ${event.group}`,
        'messages were deleted that a group had not handled: it has had no owner for too long and counts as abandoned',
        { ...event },
      ),
    );
    this.on('retentionPinned', ({ topic, partition, group, length }) => {
      if (group === '') return;
      const fields = { topic, partition, group, length };
      this.limited(
        'warn',
        `pinned ${topic} ${group}`,
        'a partition is beyond its bounds: this group has not settled it',
        fields,
      );
    });
    this.on('deadLetterDeleted', ({ topic, partition, count }) =>
      this.limited('log', `deleted ${topic}`, 'dead letters were deleted', { topic, partition, count }),
    );
  }

  private listenToOwnership(): void {
    this.on('leaseAcquired', (fields) => this.logger.debug('a partition was acquired', { ...fields }));
    this.on('leaseReleased', (fields) => this.logger.debug('a partition was released', { ...fields }));
    this.on('leaseLost', (event) =>
      this.limited('warn', `lost ${event.topic} ${event.group}`, 'a lease was lost', { ...event }),
    );
    this.on('takenOver', (event) =>
      this.limited(
        'log',
        `taken ${event.topic} ${event.group}`,
        'unfinished messages of the former owner were taken over',
        {
          ...event,
        },
      ),
    );
    this.on('ledgerRepaired', (event) =>
      this.limited(
        'warn',
        `ledger ${event.topic} ${event.group}`,
        'pending messages differed from what the owner held; they were brought back',
        { ...event },
      ),
    );
    this.on('rebalanced', (event) => {
      const changed = event.acquired > 0 || event.givenUp > 0;
      this.logger[changed ? 'log' : 'debug']('partitions of the group were shared out', { ...event });
    });
  }

  private listenToTopics(): void {
    this.on('topicDeleted', (event) => this.logger.log('a topic was deleted', { ...event }));
    this.on('topicCreated', (event) => this.logger.log('a topic was created', { ...event }));
    this.on('healed', (event) =>
      this.limited(
        'error',
        `healed ${event.topic} ${event.group}`,
        'a lost consumer group or topic was made again; the server may have lost data',
        { ...event },
      ),
    );
  }

  private limited(level: Level, subject: string, message: string, fields: LogFields): boolean {
    const suppressed = this.limiter.pass(subject);
    if (suppressed === null) return false;
    this.logger[level](message, suppressed === 0 ? fields : { ...fields, suppressed });
    return true;
  }

  private on<E extends MqEventName>(event: E, listener: (payload: MqEventMap[E]) => void): void {
    this.undo.push(this.events.on(event, listener));
  }
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : typeof error;
}

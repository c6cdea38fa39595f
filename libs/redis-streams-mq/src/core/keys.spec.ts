import fc from 'fast-check';
import { Keys } from './keys.js';

const keys = new Keys('streaming:mq', 'stream:topic');

/** What Redis Cluster hashes of a key: what stands between the first brace and the next closing one. */
function hashTag(key: string): string {
  const open = key.indexOf('{');
  const close = key.indexOf('}', open + 1);
  return open < 0 || close <= open + 1 ? key : key.slice(open + 1, close);
}

describe('the keys are those of the documentation', () => {
  it('of a group that consumes the dead letters', () => {
    const ofLetters = keys.ofDeadLetters();
    expect(ofLetters.groupPartition('orders', 0, 'billing')).toMatchObject({
      stream: 'stream:topic:{orders:p:0}:dlq',
      retryStream: 'stream:topic:{orders:p:0}:dlq:retry:billing',
      lease: 'streaming:mq:dlq:lease:{orders:p:0}:billing',
      retry: 'streaming:mq:dlq:retry:{orders:p:0}:billing',
      commit: 'streaming:mq:dlq:commit:{orders:p:0}',
    });
    expect(ofLetters.topic('orders')).toEqual(keys.topic('orders'));
    expect([ofLetters.topics, ofLetters.announcements]).toEqual([keys.topics, keys.announcements]);
  });

  it('of a partition and a group on it', () => {
    expect(keys.groupPartition('orders', 0, 'billing')).toEqual({
      stream: 'stream:topic:{orders:p:0}',
      retryStream: 'stream:topic:{orders:p:0}:retry:billing',
      dlq: 'stream:topic:{orders:p:0}:dlq',
      imports: 'streaming:mq:imports:{orders:p:0}',
      lease: 'streaming:mq:lease:{orders:p:0}:billing',
      epoch: 'streaming:mq:epoch:{orders:p:0}:billing',
      retry: 'streaming:mq:retry:{orders:p:0}:billing',
      retryItems: 'streaming:mq:retry:{orders:p:0}:billing:items',
      held: 'streaming:mq:held:{orders:p:0}:billing',
      crash: 'streaming:mq:crash:{orders:p:0}:billing',
      delayed: 'streaming:mq:delayed:{orders:p:0}',
      delayedItems: 'streaming:mq:delayed:{orders:p:0}:items',
      delayedSeq: 'streaming:mq:delayed:{orders:p:0}:seq',
      commit: 'streaming:mq:commit:{orders:p:0}',
      activity: 'streaming:mq:activity:{orders:p:0}',
      pausedAll: 'streaming:mq:paused:{orders:p:0}',
      pauseChanges: 'streaming:mq:pause-changes:{orders:p:0}',
      incarnation: 'streaming:mq:incarnation:{orders:p:0}',
      paused: 'streaming:mq:paused:{orders:p:0}:billing',
    });
  });

  it('of what says who owns a partition, also for a group that consumes the dead letters', () => {
    for (const some of [keys, keys.ofDeadLetters()]) {
      const { lease, paused, pausedAll } = some.groupPartition('orders', 7, 'billing');
      expect(some.ownership('orders', 7, 'billing')).toEqual({ lease, paused, pausedAll });
    }
  });

  it('of a partition alone', () => {
    expect(keys.stream('orders', 7)).toBe('stream:topic:{orders:p:7}');
    expect(keys.groupPartition('orders', 7, 'billing')).toMatchObject(keys.partition('orders', 7));
    expect(keys.partition('orders', 7).stream).toBe(keys.stream('orders', 7));
    expect(keys.dedup('orders', 0, 'id-1')).toBe('streaming:mq:dedup:{orders:p:0}:id-1');
  });

  it('of a topic, a group, an instance and the whole', () => {
    expect(keys.topic('orders')).toEqual({
      meta: 'streaming:mq:topic:{orders}:meta',
      partitions: 'streaming:mq:topic:{orders}:partitions',
    });
    expect(keys.members('billing')).toEqual({
      members: 'streaming:mq:members:{billing}',
      info: 'streaming:mq:members:{billing}:info',
    });
    expect(keys.wake('consumer-1', 'billing')).toBe('streaming:mq:wake:consumer-1:billing');
    expect(keys.topics).toBe('streaming:mq:topics');
    expect(keys.reporter).toBe('streaming:mq:reporter');
  });

  it('begin with the prefixes that were configured', () => {
    const other = new Keys('a', 'b');
    expect([other.topics, other.announcements, other.stream('t', 0), other.wake('i', 'g')]).toEqual([
      'a:topics',
      'a:announcements',
      'b:{t:p:0}',
      'a:wake:i:g',
    ]);
  });
});

describe('whatever a topic and a group are called', () => {
  const name = fc
    .string({ unit: fc.constantFrom('a', 'b', 'A', 'B', '0', '1', '.', '_', '-'), minLength: 1, maxLength: 12 })
    .filter((text) => text !== '.' && text !== '..');
  const index = fc.nat({ max: 4_095 });

  it('DATA-07 CLU-05 the keys of one partition are in one slot, and no two are the same', () => {
    fc.assert(
      fc.property(name, index, name, fc.string(), (topic, partition, group, dedupId) => {
        const all = [
          ...Object.values(keys.groupPartition(topic, partition, group)),
          keys.dedup(topic, partition, dedupId),
        ];
        expect(new Set(all.map(hashTag))).toEqual(new Set([`${topic}:p:${partition}`]));
        expect(new Set(all).size).toBe(all.length);
      }),
    );
  });

  it('the keys of a topic are in one slot, and those of a group’s members', () => {
    fc.assert(
      fc.property(name, (text) => {
        for (const pair of [keys.topic(text), keys.members(text)]) {
          expect(new Set(Object.values(pair).map(hashTag))).toEqual(new Set([text]));
        }
      }),
    );
  });

  it('DATA-07 DATA-08 two places share the keys that every group shares, and no others', () => {
    const place = fc.tuple(name, index, name);
    fc.assert(
      fc.property(place, place, ([topicA, a, groupA], [topicB, b, groupB]) => {
        fc.pre(topicA !== topicB || a !== b || groupA !== groupB);
        const ofA = Object.values(keys.groupPartition(topicA, a, groupA));
        const ofB = new Set(Object.values(keys.groupPartition(topicB, b, groupB)));
        const shared = topicA === topicB && a === b ? Object.values(keys.partition(topicA, a)) : [];
        expect(new Set(ofA.filter((key) => ofB.has(key)))).toEqual(new Set(shared));
      }),
    );
  });
});

import { readFileSync } from 'node:fs';
import { compareStreamIds } from '../../libs/redis-streams-mq/src/core/stream-id.js';
import { HandlingRecord } from '../support/handling-record.js';
import { useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
const group = 'g';

describe('DEL-16 the order of a key through a retry', () => {
  it('is that of the first attempts; a retry passes nothing, is passed, and says what it is and where it was', async () => {
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    /** By key, as a handler keeps it that lets no retry overwrite what is newer. */
    const state = new Map<string, { readonly id: string; readonly n: number }>();
    const instance = await mq.open({ defaultPartitionCount: 1, retryMaxAttempts: 3 });
    await instance.start({
      topic,
      group,
      handle: record.handler('a', ({ context }, { n }) => {
        if (n === 2 && context.attempt < 3) throw new Error('not yet');
        const { key, id } = context;
        const newest = state.get(key!);
        if (newest === undefined || compareStreamIds(id, newest.id) > 0) state.set(key!, { id, n });
      }),
    });
    const ids = new Map<number, string>();
    for (const n of [1, 11, 2, 12, 3, 13, 4, 14, 5, 15]) {
      ids.set(n, (await instance.producer.send(topic, { n }, { key: n > 10 ? 'k2' : 'k1' })).id!);
    }
    await waitFor(() => record.calls.length === 12 && record.calls.every((call) => call.endedAt !== undefined));
    const firsts = (key: string): number[] =>
      record.calls.filter((call) => call.key === key && call.attempt === 1).map((call) => call.n);
    expect(firsts('k1')).toEqual([1, 2, 3, 4, 5]);
    expect(firsts('k2')).toEqual([11, 12, 13, 14, 15]);
    const twos = record.calls.filter((call) => call.n === 2);
    expect(twos.map(({ attempt, id }) => [attempt, id])).toEqual([1, 2, 3].map((attempt) => [attempt, ids.get(2)]));
    expect(record.overlaps).toEqual([]);
    expect([state.get('k1')!.n, state.get('k2')!.n]).toEqual([5, 15]);
  });

  it('is promised nothing more, unless the handler asks for it: the guarantees say so', async () => {
    const guarantees = readFileSync('docs/guarantees.md', 'utf8');
    expect(guarantees).toMatch(/A retry: with `retryOrdering: 'relaxed'`, the default, later messages pass/);
    for (const retryOrdering of ['key', 'partition']) {
      const options: object = { retryOrdering };
      await expect(mq.open(options)).rejects.toMatchObject({
        code: 'MQ_INVALID_OPTIONS',
        problems: [expect.stringMatching(/^unknown option "retryOrdering"/)],
      });
    }
  });
});

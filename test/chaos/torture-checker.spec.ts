import { check } from '../torture/checker/check.js';
import { HEIR, OWNER, Story, takeover } from '../torture/checker/story.js';
import type { TortureRecord } from '../torture/programs/record.js';

/** As the invariant and what is said of it. */
const violationsOf = ({ evidence }: Story): string[] =>
  check(evidence).map(({ rule, what }) => `${rule.slice(0, 2)} ${what}`);

describe('the checker of torture', () => {
  it('accepts messages that are handled once and in order', () => {
    expect(violationsOf(new Story(5))).toEqual([]);
  });

  it('accepts a retry after a failure, which later messages pass', () => {
    const story = new Story(3);
    story.send(4);
    story.handle(4, 4_000, { outcome: 'failed' });
    story.send(5);
    story.handle(5, 4_020);
    story.handle(4, 4_040, { attempt: 2 });
    expect(violationsOf(story)).toEqual([]);
  });

  it('accepts a take-over from a stopped owner, with its message handled twice and both at once', () => {
    expect(violationsOf(takeover())).toEqual([]);
  });

  it('accepts a send without an answer, stored or not, and a refused one that is not stored', () => {
    const story = new Story(3);
    story.refuse(4, 3, 'MQ_SEND_OUTCOME_UNKNOWN');
    story.refuse(5, 3, 'MQ_SEND_OUTCOME_UNKNOWN');
    story.refuse(6, 3, 'MQ_SEND_TIMEOUT');
    story.stored.push({ key: 'k', seq: 5, eventId: 'e5', partition: 0, id: '5-0' });
    story.handle(5, 5_000);
    expect(violationsOf(story)).toEqual([]);
  });

  it('takes a call that overran its time for a failed attempt, ended or not', () => {
    const story = new Story(1);
    story.unhandle(1);
    story.handle(1, 1_000, { outcome: 'timed out', takesMs: 2_500 });
    story.handle(1, 3_600, { attempt: 2, outcome: 'cut' });
    story.fault('kill-consumer', 'consumer-1', 6_000, 6_500);
    story.lives[0]!.to = 6_000;
    story.lives[0]!.wish = 'be killed';
    story.lives[0]!.end = 'SIGKILL';
    story.lease(HEIR, 8_000, 'acquired', 2);
    story.handle(1, 8_010, { attempt: 3, process: HEIR, epoch: 2 });
    expect(violationsOf(story)).toEqual([]);
  });

  it('accepts what a failover has provably taken: messages, and outcomes, which then come again', () => {
    const story = new Story(4);
    story.failover(2_990, 3_500, 4_500);
    story.stored.pop();
    story.handle(3, 4_600);
    story.send(5);
    story.handle(5, 5_000, { outcome: 'failed' });
    story.handle(5, 5_100, { attempt: 2 });
    expect(violationsOf(story)).toEqual([]);
  });

  it('accepts that a full Redis refuses, and that a producer that ends does', () => {
    const story = new Story(1);
    story.send(2);
    story.handle(2, 2_000);
    story.fault('full-redis', 'redis', 5_000, 7_000);
    story.refuse(3, 5_500, 'MQ_SEND_REFUSED', 'MqSendError: Redis refused: OOM command not allowed');
    story.refuse(4, 8_000, 'MQ_CLOSED');
    const life = { process: 'producer-1#1', from: 0, to: 9_000, wish: 'end' as const, end: 'exit code 0', output: '' };
    story.lives.push(life);
    expect(violationsOf(story)).toEqual([]);
  });

  describe('finds', () => {
    it('a run in which nothing was accepted, or something refused that had no reason to be', () => {
      const story = new Story(0);
      story.refuse(1, 1, 'MQ_SEND_REFUSED', 'no such function');
      expect(violationsOf(story)).toEqual([
        'I0 k#1 was refused (MQ_SEND_REFUSED): no such function',
        'I0 of 1 messages 0 were accepted',
      ]);
    });

    it('an accepted message that is not stored', () => {
      const story = new Story(3);
      story.stored.pop();
      expect(violationsOf(story)).toEqual([
        expect.stringContaining('I1 k#3 was accepted as 0/3-0 and is not in the streams'),
      ]);
    });

    it('a stored message that was never handled', () => {
      const story = new Story(3);
      story.unhandle(3);
      expect(violationsOf(story)).toEqual([expect.stringMatching(/^I1 k#3 .* never started/)]);
    });

    it('a stored message whose only call was cut off', () => {
      const story = new Story(3);
      story.unhandle(3);
      story.handle(3, 3_000, { outcome: 'cut' });
      expect(violationsOf(story)).toEqual([expect.stringMatching(/^I1 k#3 .* cut in consumer-1#1/)]);
    });

    it('a message that is stored although it was refused', () => {
      const story = new Story(3);
      story.refuse(3, 4, 'MQ_SEND_TIMEOUT');
      expect(violationsOf(story)).toEqual([
        expect.stringContaining('I1 k#3 was refused (MQ_SEND_TIMEOUT) and is stored'),
      ]);
    });

    it('a message that is stored twice', () => {
      const story = new Story(3);
      story.stored.push({ ...story.stored[2]!, id: '9-0' });
      expect(violationsOf(story)).toEqual([expect.stringContaining('I1 k#3 is stored 2 times')]);
    });

    it('but not if Redis stood still while it was sent', () => {
      const story = new Story(3);
      story.stored.push({ ...story.stored[2]!, id: '9-0' });
      story.faults.push({ kind: 'stop-redis', target: 'redis', from: 2, to: 3_002, detail: '', missed: false });
      expect(violationsOf(story)).toEqual([]);
    });

    it('two messages of a key that are stored the wrong way round', () => {
      const story = new Story(0);
      for (const seq of [2, 1]) story.send(seq);
      for (const seq of [2, 1]) story.handle(seq, 4_000 - 1_000 * seq);
      expect(violationsOf(story)).toEqual([expect.stringContaining('I2 k#1 is stored behind #2')]);
    });

    it('two messages of a key that are handled the wrong way round', () => {
      const story = new Story(3);
      story.unhandle(2);
      story.handle(3, 2_000);
      story.handle(2, 3_000);
      expect(violationsOf(story)).toEqual([expect.stringMatching(/^I2 k#2 .* first started after k#3/)]);
    });

    it('two handlers at once under one lease', () => {
      const story = new Story(3);
      story.unhandle(2);
      story.handle(2, 2_000, { takesMs: 500 });
      story.handle(3, 2_400);
      expect(violationsOf(story)).toEqual([expect.stringMatching(/^I3 one ownership: k#2/)]);
    });

    it('two handlers at once although no lease was lost', () => {
      const story = takeover();
      const isLoss = ({ type }: TortureRecord): boolean => type === 'lease';
      story.records.splice(story.records.findLastIndex(isLoss), 1);
      story.faults.splice(0, 1, { ...story.faults[0]!, kind: 'black-hole' });
      expect(violationsOf(story)).toEqual([
        expect.stringMatching(/^I3 no lease was lost: k#3/),
        expect.stringMatching(/^I3 no lease was lost: k#3/),
        expect.stringMatching(/^I3 no lease was lost: k#3/),
      ]);
    });

    it('a lease that is lost without a fault', () => {
      const story = new Story(1);
      story.lease(OWNER, 50_000, 'lost', 1);
      expect(violationsOf(story)).toEqual([expect.stringContaining('I3 consumer-1#1 lost g:0')]);
    });

    it('a handler that is started under a lease that was taken over', () => {
      const story = takeover();
      story.unhandle(5);
      story.handle(5, 6_200);
      expect(violationsOf(story)).toEqual([expect.stringMatching(/^I3 k#5 .* but consumer-2#1 had epoch 2/)]);
    });

    it('but not one that was frozen on its way to the handler', () => {
      const story = takeover();
      story.unhandle(3);
      for (const seq of [3, 4, 5]) story.handle(seq, 5_500 + 20 * seq, { process: HEIR, epoch: 2 });
      story.handle(3, 6_001);
      expect(violationsOf(story)).toEqual([]);
    });

    it('and not one whose lease the clock has ended', () => {
      const story = takeover();
      story.unhandle(5);
      story.handle(5, 6_200);
      story.faults.push({
        kind: 'clock-set',
        target: 'redis',
        from: 5_000,
        to: 5_400,
        detail: '',
        missed: false,
      });
      expect(violationsOf(story)).toEqual([]);
    });

    it('a later lease with a smaller epoch', () => {
      const story = new Story(1);
      story.lease(HEIR, 50_000, 'acquired', 1);
      expect(violationsOf(story)).toEqual([expect.stringContaining('I3 g:0: epoch 1 was given out after 1')]);
    });

    it('a message that is handled twice without a fault, and one that is by the same owner', () => {
      const story = new Story(2);
      story.handle(2, 3_000);
      story.lease(HEIR, 9_000, 'acquired', 2);
      story.handle(1, 9_500, { process: HEIR, epoch: 2 });
      expect(violationsOf(story)).toEqual([
        expect.stringMatching(/^I4 without a fault: k#1/),
        expect.stringMatching(/^I4 in one ownership: k#2/),
      ]);
    });

    it('a message that is handled twice after a fault that costs no lease, and one long before one that does', () => {
      const story = new Story(2);
      story.fault('script-flush', 'redis', 1_995, 2_005);
      story.lease(HEIR, 9_000, 'acquired', 2);
      story.handle(2, 9_500, { process: HEIR, epoch: 2 });
      story.fault('kill-consumer', 'consumer-1', 8_000, 8_500);
      story.handle(1, 9_600, { process: HEIR, epoch: 2 });
      expect(violationsOf(story)).toEqual([
        expect.stringMatching(/^I4 without a fault: k#1/),
        expect.stringMatching(/^I4 without a fault: k#2/),
      ]);
    });

    it('but not one whose retry a full Redis refused before another took over', () => {
      const story = new Story(1);
      story.unhandle(1);
      story.fault('full-redis', 'redis', 900, 1_900);
      story.handle(1, 1_000, { outcome: 'failed' });
      story.lease(HEIR, 1_500, 'acquired', 2);
      story.handle(1, 1_510, { process: HEIR, epoch: 2 });
      expect(violationsOf(story)).toEqual([]);
    });

    it('what a failover cannot have taken', () => {
      const story = new Story(4);
      story.failover(3_500, 3_600, 4_500);
      story.stored.splice(2, 1);
      story.handle(2, 4_600);
      expect(violationsOf(story)).toEqual([
        expect.stringMatching(/^I1 k#3 was accepted as 0\/3-0 and is not in the streams/),
        expect.stringMatching(/^I4 in one ownership: k#2/),
      ]);
    });

    it('a refusal of a Redis that is not full, and of a producer that lives', () => {
      const story = new Story(2);
      story.refuse(3, 5_500, 'MQ_SEND_REFUSED', 'MqSendError: Redis refused: OOM command not allowed');
      story.refuse(4, 8_000, 'MQ_CLOSED');
      expect(violationsOf(story)).toEqual([
        expect.stringMatching(/^I0 k#3 was refused \(MQ_SEND_REFUSED\)/),
        expect.stringMatching(/^I0 k#4 was refused \(MQ_CLOSED\)/),
      ]);
    });

    it('a partition that was silent while messages waited', () => {
      const story = new Story(1);
      story.send(2);
      story.handle(2, 4_500);
      expect(violationsOf(story)).toEqual([expect.stringContaining('I6 g:0 was silent for 2501 ms without a fault')]);
    });

    it('but not while a handler ran, or a fault was felt', () => {
      const story = new Story(1);
      story.handle(1, 2_000, { attempt: 1, takesMs: 1 });
      story.records.splice(-2);
      story.send(2);
      story.fault('stop-redis', 'redis', 1_500, 2_500);
      story.handle(2, 6_000);
      expect(violationsOf(story)).toEqual([]);
    });

    it('a fault that met nobody', () => {
      const story = new Story(1);
      story.faults.push({ kind: 'cut-read', target: '', from: 500, to: 600, detail: '', missed: true });
      expect(violationsOf(story)).toEqual(['I0 cut-read met nobody']);
    });

    it('a message that comes under another event id', () => {
      const story = new Story(2);
      story.handle(2, 3_000, { eventId: 'other' });
      expect(violationsOf(story)).toEqual([expect.stringMatching(/^I4 k#2 .* came as other/)]);
    });

    it('an attempt that no failure has led to', () => {
      const story = new Story(1);
      story.handle(1, 2_000, { attempt: 2 });
      expect(violationsOf(story)).toEqual([expect.stringMatching(/^I4 k#1 .* is attempt 2 after 0 failures/)]);
    });

    it('dead letters that are not earned, doubled, or handled as well', () => {
      const story = new Story(3);
      story.bury(1, 'rejected', 1);
      story.unhandle(2);
      story.handle(2, 2_000, { outcome: 'rejected' });
      story.bury(2, 'rejected', 1);
      story.bury(2, 'rejected', 1);
      story.handle(3, 3_000, { outcome: 'failed' });
      story.bury(3, 'exhausted', 5);
      expect(violationsOf(story)).toEqual([
        expect.stringMatching(/^I1 k#1 .* has not earned it: success/),
        expect.stringMatching(/^I1 k#1 .* was handled as well/),
        expect.stringMatching(/^I1 k#2 .* is there 2 times/),
        expect.stringMatching(/^I1 k#3 .* has not earned it: failed/),
      ]);
    });

    it('a process that ends by itself, one that throws past everybody, and one that does not end', () => {
      const story = new Story(1);
      story.lives[0]!.end = 'exit code 1';
      story.lives[1]!.end = undefined;
      story.records.push({ type: 'crash', at: 5, detail: 'unhandledRejection: Error', process: HEIR });
      expect(violationsOf(story)).toEqual([
        expect.stringMatching(/^I5 consumer-2#1: unhandledRejection/),
        expect.stringMatching(/^I5 consumer-1#1 should end: exit code 1/),
        expect.stringMatching(/^I5 consumer-2#1 should end: still runs/),
      ]);
    });

    it('what did not recover in time', () => {
      const story = new Story(1);
      story.mishaps.push('partition 3 is not drained');
      expect(violationsOf(story)).toEqual(['I6 partition 3 is not drained']);
    });
  });
});

// What must compile: the public API of the tests without Redis. Nothing here runs.
import { Test } from '@nestjs/testing';
import { DeadLetterQueue } from 'nestjs-redis-streams-mq';
import {
  type MessageState,
  MqTesting,
  MqTestingModule,
  type MqTestingOptions,
  type PendingMessage,
  type RetryingMessage,
} from 'nestjs-redis-streams-mq/testing';

export async function sample(): Promise<void> {
  const options: MqTestingOptions = { startAt: new Date('2026-01-01'), patienceMs: 100 };
  const mq = new MqTesting(options);
  const app = await mq
    .override(Test.createTestingModule({ imports: [MqTestingModule.forRoot({}, options)] }))
    .compile();
  await app.init();
  const sent = await mq.publish('orders', { id: 1 }, { key: 'ann' }, { instance: 'audit' });
  const state: MessageState = await mq.stateOf(sent, { group: 'billing' });
  if (state.status === 'retry') await mq.advance(state.retryAt - mq.now);
  const pending: readonly PendingMessage[] = mq.pending('orders');
  const retries: readonly RetryingMessage[] = mq.retries('orders', { group: 'billing' });
  await mq.assertDead(sent, { reason: 'exhausted', attempts: pending.length + retries.length });
  await mq.crash();
  await app.get(DeadLetterQueue).replayAll('orders');
  await mq.settle();
}

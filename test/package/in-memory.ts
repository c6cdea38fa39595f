import 'reflect-metadata';
import assert from 'node:assert/strict';
import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { StreamHandler, type StreamContext } from 'nestjs-redis-streams-mq';
import { MqTesting, MqTestingModule } from 'nestjs-redis-streams-mq/testing';

@Injectable()
class Billing {
  @StreamHandler('orders', 'billing')
  onOrder(_order: unknown, { attempt }: StreamContext): void {
    if (attempt === 1) throw new Error('once more');
  }
}

async function main(): Promise<void> {
  const app = await Test.createTestingModule({ imports: [MqTestingModule.forRoot()], providers: [Billing] }).compile();
  app.useLogger(false);
  await app.init();
  const mq = app.get(MqTesting);
  const sent = await mq.publish('orders', { id: 7 });
  await mq.assertRetried(sent, { attempt: 1, inMs: 1_000 });
  await mq.advance(1_000);
  await mq.assertAcked(sent);
  assert.deepEqual(await mq.deadLetters('orders'), []);
  await app.close();
  console.log('IN MEMORY OK');
}

main().catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});

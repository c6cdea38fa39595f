// What must not compile, each with its error. Nothing here runs.
import {
  defineTopic,
  MessageHandleResult,
  MqProducer,
  type MqOptions,
  type RedisStreamsMqModuleOptions,
  RedisStreamsMqModule,
  RetryLater,
  type SendResult,
  type StreamContext,
  StreamHandler,
} from 'nestjs-redis-streams-mq';
import { MqTesting } from 'nestjs-redis-streams-mq/testing';

declare const producer: MqProducer;
declare const ctx: StreamContext;
declare const mq: MqTesting;
declare const sent: SendResult;

// @ts-expect-error TS2353: no such option
export const unknownOption: RedisStreamsMqModuleOptions = { workerThread: 4 };
// @ts-expect-error TS2322: an option of another type
export const wrongType: MqOptions = { workerThreads: 'many' };
// @ts-expect-error TS2322: only two values
export const wrongValue: MqOptions = { startFrom: 'somewhere' };
// @ts-expect-error TS2769: no such option of a handler
export const wrongHandler: unknown = StreamHandler('orders', 'billing', { attempts: 3 });
// @ts-expect-error TS2769: a group is a text
export const wrongGroup: unknown = StreamHandler('orders', 7);
// @ts-expect-error TS2769: headers are texts
export const wrongHeader: Promise<unknown> = producer.send('orders', {}, { headers: { n: 1 } });
// @ts-expect-error TS2769: no such option of a send
export const wrongSend: Promise<unknown> = producer.send('orders', {}, { delay: 5 });
// @ts-expect-error TS2339: a batch has no such result
export const wrongBatch: Promise<unknown> = producer.sendBatch('orders', []).then((batch) => batch.accepted);
// @ts-expect-error TS2345: a delay is a number
export const wrongDelay: RetryLater = new RetryLater('soon');
// @ts-expect-error TS2322: a text is none of the results
export const wrongResult: MessageHandleResult = 'RETRY';
// @ts-expect-error TS2540: a context is not to be changed
ctx.attempt = 2;
// @ts-expect-error TS2322: a key may be absent
export const key: string = ctx.key;
// @ts-expect-error TS2341: not part of the API
export const hidden: unknown = producer.deps;
// @ts-expect-error TS2554: options are taken by forRoot alone
export const wrongModule: unknown = new RedisStreamsMqModule();
// @ts-expect-error TS2322: no such reason
export const wrongReason: Promise<void> = mq.assertDead(sent, { reason: 'tired' });
// @ts-expect-error TS2339: a state is looked at before its fields
export const wrongState: Promise<unknown> = mq.stateOf(sent).then((state) => state.retryAt);

const orders = defineTopic<{ readonly id: number }>('orders');
// @ts-expect-error TS2769: a topic knows its payload
export const wrongPayload: Promise<unknown> = producer.send(orders, { id: 'seven' });
// @ts-expect-error TS2769: so does a test
export const wrongPublish: Promise<unknown> = mq.publish(orders, { name: 'ann' });

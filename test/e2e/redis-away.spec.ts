import { Injectable } from '@nestjs/common';
import { MqProducer, RedisStreamsMqModule, StreamHandler } from 'nestjs-redis-streams-mq';
import request from 'supertest';
import { queueOptions, TestApps } from '../support/nest-app.js';
import { describeWithServer, startRedis, uniqueName, type TestRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const written: string[] = [];
const write = (line: unknown): void => void written.push(String(line));
const apps = new TestApps({ log: write, warn: write, error: write });
beforeEach(() => {
  written.length = 0;
});
afterEach(() => apps.closeAll());

describeWithServer('CONN-15 Redis is away when the application boots', () => {
  let redis: TestRedis;
  beforeEach(async () => {
    redis = await startRedis();
    await redis.kill();
  });
  afterEach(() => redis.stop());

  it('the application boots and is not ready, and consumption begins when Redis comes', async () => {
    const topic = uniqueName('topic');
    const seen: unknown[] = [];
    @Injectable()
    class Svc {
      @StreamHandler(topic, 'g')
      handle(payload: unknown): void {
        seen.push(payload);
      }
    }
    const app = await apps.listen({ imports: [RedisStreamsMqModule.forRoot(queueOptions(redis))], providers: [Svc] });
    const health = async (): Promise<number> => (await request(await app.getUrl()).get('/health')).status;
    expect(await health()).toBe(503);
    await redis.restart();
    await app.get(MqProducer).send(topic, 'first');
    await waitFor(() => seen.length === 1);
    await waitFor(async () => (await health()) === 200);
    // CONN-16: told, and not a line for each attempt of each connection.
    const lost = written.filter((line) => line.startsWith('the connection to Redis is lost or failed'));
    expect(lost.length).toBeGreaterThan(0);
    expect(lost.length).toBeLessThan(10);
  });

  it('the application does not start with failFast, within the time given, and leaves nothing open', async () => {
    const options = queueOptions(redis, { failFast: true, bootTimeoutMs: 500 });
    const before = performance.now();
    await expect(apps.context({ imports: [RedisStreamsMqModule.forRoot(options)] })).rejects.toMatchObject({
      code: 'MQ_REDIS_UNREACHABLE',
    });
    expect(performance.now() - before).toBeLessThan(3_000);
    await redis.restart();
    const list = (await redis.client().client('LIST')) as string;
    expect(list).not.toContain('name=redis-streams-mq:');
  });

  it('the application shuts down in time', async () => {
    const app = await apps.context({ imports: [RedisStreamsMqModule.forRoot(queueOptions(redis))] });
    const before = performance.now();
    await apps.close(app);
    expect(performance.now() - before).toBeLessThan(3_000);
  });
});

import { Redis } from 'ioredis';
import { Child } from '../support/child.js';
import { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { uniqueName } from '../support/redis-server.js';
import { describeWithTls, startTlsRedis, type TlsRedis } from '../support/tls.js';
import { waitFor } from '../support/wait-for.js';

const PASSWORD = 'p@ss:w/o#rd%41?&=';

describeWithTls('CLU-12 over TLS', () => {
  let server: TlsRedis;
  let raw: Redis;
  const clients: Redis[] = [];

  beforeAll(async () => {
    server = await startTlsRedis();
    raw = server.redis.client();
    await raw.call('ACL', 'SETUSER', 'app', 'on', `>${PASSWORD}`, '~*', '&*', '+@all');
  });
  afterEach(() => {
    for (const client of clients.splice(0)) client.disconnect();
  });
  afterAll(() => server.stop());

  /** The server's port of each connection of ours. */
  async function portsInUse(): Promise<number[]> {
    const lines = ((await raw.client('LIST')) as string)
      .split('\n')
      .filter((line) => line.includes('redis-streams-mq'));
    return lines.map((line) => Number(/ laddr=\S+:(\d+)/.exec(line)?.[1]));
  }

  const tls = (): { host: string; port: number; tls: { ca: string } } => ({
    host: 'localhost',
    port: server.tlsPort,
    tls: { ca: server.ca },
  });

  it.each<[string, () => unknown]>([
    ['options with a CA', () => tls()],
    ['options with a user whose password is full of signs', () => ({ ...tls(), username: 'app', password: PASSWORD })],
    [
      'an address, and the name that the certificate is for',
      () => ({ ...tls(), host: '127.0.0.1', tls: { ca: server.ca, servername: 'localhost' } }),
    ],
    [
      'a client',
      () => {
        const client = new Redis(tls());
        clients.push(client);
        return client;
      },
    ],
  ])('each of our connections is encrypted: %s', async (_, make) => {
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const instance = await TestInstance.open({
      redis: make(),
      failFast: true,
      waitReplicas: 1,
      defaultPartitionCount: 2,
    });
    try {
      await instance.start({ topic, group: uniqueName('group'), handle: record.handler('owner') });
      // Stored, though there is no replica.
      const sent = instance.producer.send(topic, { n: 1 });
      await expect(sent).rejects.toMatchObject({ code: 'MQ_SEND_NOT_REPLICATED' });
      await waitFor(() => record.handled === 1);
      // Commands, leases, announcements, sends and the reader.
      await waitFor(async () => (await portsInUse()).length === 5);
      expect(new Set(await portsInUse())).toEqual(new Set([server.tlsPort]));
    } finally {
      await instance.close();
    }
    await waitFor(async () => (await portsInUse()).length === 0);
  });

  it('a URL with rediss:// and a percent-encoded password works where the process knows the authority', async () => {
    const url = `rediss://app:${encodeURIComponent(PASSWORD)}@localhost:${server.tlsPort}/2`;
    const options = { redis: url, failFast: true, defaultPartitionCount: 1, bootTimeoutMs: 5_000 };
    const child = await Child.load({ NODE_EXTRA_CA_CERTS: server.caFile });
    const topic = uniqueName('topic');
    await child.begin({ name: 'owner', options, handlers: [{ topic, group: 'g' }] }, new HandlingRecord());
    await waitFor(() => child.events.count('leaseAcquired') === 1);
    await waitFor(async () => (await portsInUse()).length === 4);
    expect(new Set(await portsInUse())).toEqual(new Set([server.tlsPort]));
    await raw.select(2);
    expect(await raw.exists(`stream:topic:{${topic}:p:0}`)).toBe(1);
    await child.kill();
    // This process does not know it.
    await expect(TestInstance.open({ ...options, bootTimeoutMs: 800 })).rejects.toMatchObject({
      code: 'MQ_REDIS_UNREACHABLE',
      message: expect.stringMatching(/TLS failed: .*certificate/) as string,
    });
  });

  it.each<[string, () => unknown, RegExp]>([
    ['another authority', () => ({ ...tls(), tls: { ca: server.otherCa } }), /TLS failed: .*\((UNABLE|SELF|DEPTH)/],
    ['another name', () => ({ ...tls(), tls: { ca: server.ca, servername: 'elsewhere' } }), /TLS failed: .*ALTNAME/],
    ['a server without TLS', () => ({ ...tls(), port: server.redis.port }), /speak TLS/],
    ['no TLS, where the server wants it', () => ({ host: 'localhost', port: server.tlsPort }), /speak TLS/],
  ])('the boot fails in time and says that it is TLS: %s', async (_, make, message) => {
    const since = performance.now();
    await expect(TestInstance.open({ redis: make(), failFast: true, bootTimeoutMs: 800 })).rejects.toMatchObject({
      code: 'MQ_REDIS_UNREACHABLE',
      message: expect.stringMatching(message) as string,
    });
    expect(performance.now() - since).toBeLessThan(3_000);
  });
});

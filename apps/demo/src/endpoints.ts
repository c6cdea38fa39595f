import type { INestApplication } from '@nestjs/common';
import { check, type Check } from './report/checks.js';

const HOST = '127.0.0.1';
const ANSWER_DEADLINE_MS = 5_000;

/** Serves on the port, or on a free one if it is taken; says so, and returns the address. */
export async function listen(app: INestApplication, port: number): Promise<string> {
  try {
    await app.listen(port, HOST);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    console.log(`Port ${port} is taken; using a free one.`);
    await app.listen(0, HOST);
  }
  return app.getUrl();
}

/** Asks each process whether it is ready, and the publishing one for its metrics. */
export async function checkEndpoints(coordinatorUrl: string, consumerUrls: readonly string[]): Promise<Check[]> {
  const health = await Promise.all([coordinatorUrl, ...consumerUrls].map((url) => get(`${url}/health`)));
  const metrics = await get(`${coordinatorUrl}/metrics`);
  return [
    check(
      `GET /health answers 200 in all ${health.length} processes`,
      health.every(({ status }) => status === 200),
      `found ${health.map(({ status, body }) => `${status} ${body}`).join('; ')}`,
    ),
    check(
      'GET /metrics counts the published messages',
      metrics.body.includes('redis_streaming_mq_produced_total{'),
      `found ${metrics.status} without redis_streaming_mq_produced_total`,
    ),
  ];
}

async function get(url: string): Promise<{ status: number; body: string }> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(ANSWER_DEADLINE_MS) });
    return { status: response.status, body: await response.text() };
  } catch (error) {
    return { status: 0, body: String(error) };
  }
}

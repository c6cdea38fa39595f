import { once } from 'node:events';
import { NestFactory } from '@nestjs/core';
import { DeadLetterQueue, MqProducer } from 'nestjs-redis-streams-mq';
import { cleanUp } from './clean-up.js';
import type { DemoOptions } from './cli.js';
import { ConsumerLogs } from './consumer-logs.js';
import { CoordinatorModule } from './coordinator.module.js';
import { DemoRun } from './demo-run.js';
import { checkEndpoints, listen } from './endpoints.js';
import { ConsumerProcesses } from './ipc/consumer-processes.js';
import { Publisher } from './publisher.js';
import { queueOptions } from './queue-options.js';
import { CallLog } from './report/call-log.js';
import { formatChecks, type Check } from './report/checks.js';
import { ResultTables } from './report/result-tables.js';
import type { Scenario } from './scenario.js';

const INSTANCES = 2;

/**
 * The publishing process: starts the consumer processes, runs the scenario, prints what happened, and with `--exit`
 * ends; without, it serves /health and /metrics until Ctrl-C.
 * @returns whether all checks passed.
 */
export async function runDemo(scenario: Scenario, options: DemoOptions, interrupt: AbortSignal): Promise<boolean> {
  console.log(`${scenario.introduction}\n`);
  const runId = `${Date.now().toString(36)}-${process.pid}`;
  const app = await NestFactory.create(CoordinatorModule.forRun(runId), {
    logger: ['warn', 'error', 'fatal'],
    abortOnError: false,
  });
  const calls = new CallLog(scenario.groups);
  const results = new ResultTables(scenario.groups);
  const logs = new ConsumerLogs(options.logs);
  const consumers = new ConsumerProcesses(
    INSTANCES,
    { runId, workload: scenario.workload },
    {
      onCall: (instance, call) => calls.add(instance, call),
      onResult: (result) => results.add(result),
      onLog: (instance, line) => logs.add(instance, line),
    },
  );
  try {
    const [url, consumerUrls] = await Promise.all([listen(app, options.port), consumers.ready()]);
    console.log(`Serving /health and /metrics: ${[url, ...consumerUrls].join(' ')}\n`);
    const run = new DemoRun({
      scenario,
      calls,
      results,
      consumers,
      publisher: new Publisher(app.get(MqProducer), calls, options.rate),
      deadLetters: app.get(DeadLetterQueue),
      interrupt,
    });
    const checks = [...(await run.execute()), ...(await checkEndpoints(url, consumerUrls))];
    console.log(`${formatChecks(checks)}\n`);
    if (!allPassed(checks)) logs.printKept();
    if (!options.exit) await serveUntil(interrupt, url, consumerUrls);
    return allPassed(checks);
  } catch (error) {
    if (!interrupt.aborted) logs.printKept();
    throw error;
  } finally {
    await consumers.stop();
    await app.close();
    await removeKeys(runId, scenario);
  }
}

async function serveUntil(interrupt: AbortSignal, url: string, consumerUrls: readonly string[]): Promise<void> {
  const addresses = [
    `Still serving, until Ctrl-C: ${url}/health`,
    `                             ${url}/metrics`,
    ...consumerUrls.map((consumer, i) => `                 instance ${i + 1}: ${consumer}/metrics`),
  ];
  console.log(addresses.join('\n'));
  if (!interrupt.aborted) await once(interrupt, 'abort');
}

/** Does not throw: what ended the run is more telling than what goes wrong here. */
async function removeKeys(runId: string, { topic, groups }: Scenario): Promise<void> {
  try {
    await cleanUp(queueOptions(runId), topic, groups);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    console.error(`The keys of this run could not be removed from Redis: ${reason}`);
  }
}

function allPassed(checks: readonly Check[]): boolean {
  return checks.every(({ passed }) => passed);
}

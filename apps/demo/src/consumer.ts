/** Entry of a consumer process; the coordinator forks two of them. Its settings are its first argument. */
import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { ConsumerModule } from './consumer.module.js';
import { AlertsHandler } from './flights/alerts.handler.js';
import { CoordinatorLink } from './ipc/coordinator-link.js';
import type { ConsumerSettings, ToConsumer } from './ipc/ipc-messages.js';

// Ctrl-C reaches every process of the terminal; the coordinator decides when this one stops.
process.on('SIGINT', () => undefined);

const settings = JSON.parse(process.argv[2] ?? '') as ConsumerSettings;
const app = await NestFactory.create(ConsumerModule.forRun(settings), { logger: ['log', 'warn', 'error', 'fatal'] });
const coordinator = app.get(CoordinatorLink);

let stopping: Promise<void> | undefined;

/** Finishes what is being handled, gives the partitions back, and reports the last calls. */
async function stop(): Promise<void> {
  await app.close();
  await coordinator.close();
}

function stopOnce(): void {
  stopping ??= stop().catch((error: unknown) => {
    console.error(error);
    process.exitCode = 1;
  });
}

process.on('SIGTERM', stopOnce);
process.on('disconnect', stopOnce);
process.on('message', (message: ToConsumer) => {
  switch (message.type) {
    case 'deploy-fix':
      app.get(AlertsHandler).deployFix();
      coordinator.send({ type: 'fix-deployed' });
      break;
    case 'stop':
      stopOnce();
      break;
  }
});

await app.listen(0, '127.0.0.1');
coordinator.send({ type: 'ready', url: await app.getUrl() });

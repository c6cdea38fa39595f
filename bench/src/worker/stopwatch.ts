import type { Figures, Stopwatch } from '../scenario.js';
import type { Profiler } from './profiler.js';
import { processorTimeUs } from './processor-time.js';

export function startStopwatch(serverPids: readonly number[], profiler?: Profiler): Stopwatch {
  const serverBefore = processorTimeUs(serverPids);
  const cpuBefore = process.cpuUsage();
  profiler?.start();
  const before = performance.now();
  return {
    stop(count): Figures {
      const seconds = (performance.now() - before) / 1000;
      profiler?.stop();
      const { user, system } = process.cpuUsage(cpuBefore);
      const clientUs = (user + system) / count;
      const serverAfter = processorTimeUs(serverPids);
      const rate = count / seconds;
      if (serverBefore === undefined || serverAfter === undefined) return { rate, clientUs };
      const serverUs = (serverAfter - serverBefore) / count;
      return { rate, clientUs, serverUs, cpuUs: clientUs + serverUs };
    },
  };
}

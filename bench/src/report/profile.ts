import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const SHOWN = 25;

interface CpuProfile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
  }[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** The functions in which each process spent its time, those with the most first. Idle time is left out. */
export function summarizeProfiles(folder: string): string {
  const files = readdirSync(folder).filter((file) => file.endsWith('.cpuprofile'));
  return files
    .map((file) => `${file}\n${summarize(JSON.parse(readFileSync(join(folder, file), 'utf8')) as CpuProfile)}`)
    .join('\n');
}

function summarize({ nodes, samples, timeDeltas }: CpuProfile): string {
  const names = new Map(nodes.map(({ id, callFrame }) => [id, nameOf(callFrame)]));
  const self = new Map<string, number>();
  for (const [index, node] of samples.entries()) {
    const name = names.get(node) ?? 'unknown';
    if (name !== '(idle)' && name !== '(program)') self.set(name, (self.get(name) ?? 0) + (timeDeltas[index] ?? 0));
  }
  const total = [...self.values()].reduce((sum, time) => sum + time, 0);
  const top = [...self].sort(([, a], [, b]) => b - a).slice(0, SHOWN);
  return top.map(([name, time]) => `  ${((100 * time) / total).toFixed(1).padStart(5)} %  ${name}`).join('\n');
}

function nameOf({ functionName, url, lineNumber }: CpuProfile['nodes'][number]['callFrame']): string {
  const name = functionName || '(anonymous)';
  if (url === '') return name;
  return `${name}  ${url.replace(/^.*\/(node_modules|libs|bench)\//, '$1/').replace('node_modules/', '')}:${lineNumber + 1}`;
}

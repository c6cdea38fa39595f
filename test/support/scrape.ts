/** What is scraped: a registry of prom-client in either format. */
interface Scraped {
  metrics(): Promise<string>;
}

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Every sample of an exposition. */
export function samplesOf(exposition: string): Sample[] {
  return exposition
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const [, name = line, labels = '', value] = /^(\w+)(?:\{(.*)\})? (\S+)/.exec(line) ?? [];
      const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, text]) => [key!, text!]);
      return { name, labels: Object.fromEntries(pairs) as Record<string, string>, value: Number(value) };
    });
}

/** Every sample of that name with at least these labels, as scraped now. */
export async function samples(from: Scraped, name: string, labels: Record<string, string> = {}): Promise<Sample[]> {
  const wanted = Object.entries(labels);
  return samplesOf(await from.metrics()).filter(
    (sample) => sample.name === name && wanted.every(([key, value]) => sample.labels[key] === value),
  );
}

/** The sum over all samples of that name with at least these labels; `undefined` when there is none. */
export async function valueOf(
  from: Scraped,
  name: string,
  labels: Record<string, string> = {},
): Promise<number | undefined> {
  const found = await samples(from, name, labels);
  return found.length === 0 ? undefined : found.reduce((sum, { value }) => sum + value, 0);
}

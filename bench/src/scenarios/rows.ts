import type { Check, Entry, Row } from '../scenario.js';

/** The four that send and consume in their own way; each is left out where its server or its feature is missing. */
export const PEERS: readonly Entry[] = [
  { name: 'bullmq', contender: 'bullmq', share: 0.2 },
  { name: 'nats', contender: 'nats', share: 0.2, fullOnly: true },
  { name: 'rabbitmq', contender: 'rabbitmq', share: 0.1, fullOnly: true },
  { name: 'redis-streams-broker', contender: 'redis-streams-broker', share: 0.2, fullOnly: true },
];

export const OURS: Entry = { name: 'ours', contender: 'ours' };
/** Reads as large as those of `raw`. */
export const OURS_100: Entry = { ...OURS, settings: { consumerBatchCount: 100 } };
export const RAW: Entry = { name: 'raw', contender: 'raw' };

/** The rate, and the processor time that each message costs in this process and in the server together. */
export function rateRows(
  name: string,
  checks: readonly Check[],
  options: { guarded?: boolean; unit?: string } = {},
): Row[] {
  const { guarded = false, unit = 'messages/s' } = options;
  return [
    { name, figure: 'rate', unit, better: 'higher', checks },
    // What a machine does beside it hardly moves this one.
    { name: `${name}.cpu`, figure: 'cpuUs', unit: 'us/message', better: 'lower', guarded },
  ];
}

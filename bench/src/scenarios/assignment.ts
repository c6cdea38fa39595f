import { pathToFileURL } from 'node:url';
import type * as Assignment from '../../../libs/redis-streams-mq/src/core/assignment.js';
import { atMost } from '../checks.js';
import { libraryFile } from '../library.js';
import type { Scenario } from '../scenario.js';
import { median } from '../statistics.js';

const MEMBERS = 200;
const PARTITIONS = 1_024;
const REPEATS = 15;

export const assignmentScenarios: readonly Scenario[] = [
  {
    name: 'assignment',
    description: `Who of ${MEMBERS} members is to own which of ${PARTITIONS} partitions, computed from nothing and after one member has come. Pure: no Redis.`,
    server: 'standalone',
    inQuick: true,
    rounds: 3,
    entries: [{ name: 'ours', contender: 'engine' }],
    rows: [
      { name: 'assignment', figure: 'fromNothing', unit: 'ms', better: 'lower', checks: [atMost(50, 'ms')] },
      { name: 'assignment.newcomer', figure: 'newcomer', unit: 'ms', better: 'lower', checks: [atMost(50, 'ms')] },
    ],
    async measure() {
      const { assign } = (await import(pathToFileURL(libraryFile('core/assignment.js')).href)) as typeof Assignment;
      const subscriptions = new Map([['orders', { modulo: 1, remainder: 0 }]]);
      const members = Array.from({ length: MEMBERS }, (_, index) => ({ id: `member-${index}`, cap: 0, subscriptions }));
      const partitions = Array.from({ length: PARTITIONS }, (_, partition) => ({ topic: 'orders', partition }));
      const owners = new Map<string, string>();
      for (const [partition, owner] of assign(members, partitions, new Map()).owners)
        if (owner !== null) owners.set(partition, owner);
      const more = [...members, { id: 'newcomer', cap: 0, subscriptions }];
      return {
        fromNothing: timeOf(() => assign(members, partitions, new Map())),
        newcomer: timeOf(() => assign(more, partitions, owners)),
      };
    },
  },
];

function timeOf(work: () => unknown): number {
  const times = Array.from({ length: REPEATS }, () => {
    const before = performance.now();
    work();
    return performance.now() - before;
  });
  return median(times);
}

import { faultsFor } from '../torture/faults/catalog.js';
import { CHILD_FAULTS } from '../torture/faults/child-faults.js';
import { planFaults } from '../torture/faults/plan.js';
import { argumentsFor, listing, parseCommand, UsageError } from '../torture/options.js';

describe('the plan of the faults', () => {
  const kinds = faultsFor('standalone');

  it('is the same for the same seed, and another for another', () => {
    expect(planFaults('7', 120_000, kinds)).toEqual(planFaults('7', 120_000, kinds));
    expect(planFaults('7', 120_000, kinds)).not.toEqual(planFaults('8', 120_000, kinds));
  });

  it.each([5, 60, 300])('has each fault at least once in %i s, none after the end', (seconds) => {
    const plan = planFaults('7', seconds * 1_000, kinds);
    const due = plan.filter(({ isDue }) => isDue).map(({ kind }) => kind);
    expect(due.toSorted()).toEqual(kinds.toSorted());
    expect(Math.max(...plan.map(({ atMs }) => atMs))).toBeLessThan(seconds * 1_000);
  });

  it('goes on with faults until the end', () => {
    const plan = planFaults('7', 300_000, kinds);
    expect(plan.length).toBeGreaterThan(120);
    expect(plan.at(-1)!.atMs).toBeGreaterThan(294_000);
  });
});

describe('the arguments of torture', () => {
  it('have defaults, with all the faults that the servers have', () => {
    const command = parseCommand([]);
    expect(command).toMatchObject({ do: 'torture', keep: false, options: { redis: 'standalone', seconds: 60 } });
  });

  it('lead to the same options again', () => {
    const args = ['--redis', 'cluster', '--seed', '7', '--faults', 'kill-consumer,reshard', '--rate', '50'];
    const command = parseCommand(args);
    if (command.do !== 'torture') throw new Error('no run');
    expect(parseCommand(argumentsFor(command.options).split(' '))).toEqual(command);
  });

  it.each([
    [['--redis', 'valkey'], /--redis is standalone, sentinel, cluster/],
    [['--seconds', '1e9'], /--seconds takes a whole number/],
    [['--seconds', ''], /--seconds takes a whole number/],
    [['--rate', '1.5'], /--rate takes a whole number/],
    [['--consumers', '0'], /--consumers takes a whole number/],
    [['--seed', '../x'], /--seed takes letters/],
    [['--faults', 'kill-consumer,kill-all'], /there is no fault 'kill-all'/],
    [['--faults', ''], /there is no fault ''/],
    [['--faults', 'reshard'], /standalone does not have the fault 'reshard'/],
    [['--mutation', 'none'], /there is no mutation 'none'/],
    [['--nonsense'], /Unknown option '--nonsense'/],
    [['more'], /Unexpected argument 'more'/],
  ])('refuse %j', (args, why) => {
    expect(() => parseCommand(args)).toThrow(UsageError);
    expect(() => parseCommand(args)).toThrow(why);
  });

  it('list every fault, each of which can be done', () => {
    for (const kind of faultsFor('cluster')) expect(listing()).toContain(kind);
    const kinds = faultsFor('standalone');
    for (const name of Object.keys(CHILD_FAULTS)) expect(kinds).toContain(name);
  });
});

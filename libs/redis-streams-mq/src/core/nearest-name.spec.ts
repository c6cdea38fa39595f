import * as fc from 'fast-check';
import { nearestName } from './nearest-name.js';

const known = ['redis', 'leaseTtlSeconds', 'keyPrefix', 'streamKeyPrefix', 'retryMaxAttempts', 'maxInFlight'];

describe('nearestName', () => {
  it.each([
    ['leaseTtl', 'leaseTtlSeconds'],
    ['leaseTtlSecond', 'leaseTtlSeconds'],
    ['lease_ttl_seconds', 'leaseTtlSeconds'],
    ['lease.ttl.seconds', 'leaseTtlSeconds'],
    ['prefix', 'keyPrefix'],
    ['maxAttempts', 'retryMaxAttempts'],
    ['MAXINFLIGHT', 'maxInFlight'],
    ['rediss', 'redis'],
  ])('leads from %s to %s', (name, nearest) => {
    expect(nearestName(name, known)).toBe(nearest);
  });

  it('leads every known name, with one letter lost or added, back to itself', () => {
    fc.assert(
      fc.property(fc.constantFrom(...known), fc.nat(4), fc.constantFrom('x', ''), (name, at, letter) => {
        const misspelt = name.slice(0, at) + letter + name.slice(letter === '' ? at + 1 : at);
        expect(nearestName(misspelt, known)).toBe(name);
      }),
    );
  });

  it('answers for any text, however long, and with nothing known', () => {
    fc.assert(fc.property(fc.string({ unit: 'binary' }), (name) => known.includes(nearestName(name, known)!)));
    expect(known).toContain(nearestName('x'.repeat(1_000_000), known));
    expect(nearestName('x', [])).toBeUndefined();
  });
});

import type { Check, RowResult } from './scenario.js';

/** At least so many times as good as another entry. */
export function atLeastTimes(factor: number, entry: string): Check {
  return { text: `>= ${factor} x ${entry}`, met: ({ ratios }) => whenThere(ratios[entry], (ratio) => ratio >= factor) };
}

export function atLeast(value: number, unit: string): Check {
  return { text: `>= ${value} ${unit}`, met: (result) => whenThere(first(result), (median) => median >= value) };
}

export function atMost(value: number, unit: string): Check {
  return { text: `<= ${value} ${unit}`, met: (result) => whenThere(first(result), (median) => median <= value) };
}

/** At most so much more than another entry. */
export function atMostMore(value: number, unit: string, entry: string): Check {
  return {
    text: `<= ${entry} + ${value} ${unit}`,
    met: ({ medians }) => whenThere(medians[entry], (other) => Object.values(medians)[0]! <= other + value),
  };
}

/** At most so many times what another entry has. */
export function atMostTimes(factor: number, entry: string): Check {
  return {
    text: `<= ${factor} x ${entry}`,
    met: ({ medians }) => whenThere(medians[entry], (other) => Object.values(medians)[0]! <= factor * other),
  };
}

/** All entries of the row lie within that part of the first. */
export function flatWithin(part: number): Check {
  return {
    text: `flat within ${part * 100} %`,
    met: ({ medians }) => {
      const values = Object.values(medians);
      return values.every((value) => Math.abs(value - values[0]!) <= part * values[0]!);
    },
  };
}

function first({ medians }: RowResult): number | undefined {
  return Object.values(medians)[0];
}

function whenThere(value: number | undefined, test: (value: number) => boolean): boolean | undefined {
  return value === undefined || Number.isNaN(value) ? undefined : test(value);
}

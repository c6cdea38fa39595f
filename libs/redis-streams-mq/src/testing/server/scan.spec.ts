import { matcher, pageOf } from './scan.js';

const names = (count: number): string[] => Array.from({ length: count }, (_, n) => `topic-${n}`);

describe('pageOf', () => {
  it('goes through everything, each item once, in steps of about the count', () => {
    const all = new Set(names(100));
    const seen: string[] = [];
    let cursor = 0;
    let steps = 0;
    do {
      const page = pageOf(all, cursor, 7);
      seen.push(...page.items);
      cursor = page.next;
      steps++;
    } while (cursor !== 0);
    expect(seen.toSorted()).toEqual([...all].toSorted());
    expect(steps).toBe(15);
    expect(pageOf([], 0, 10)).toEqual({ items: [], next: 0 });
  });

  it('misses nothing that stays, whatever comes and goes between its steps', () => {
    const staying = names(50);
    const all = new Set([...staying, ...names(50).map((name) => `going ${name}`)]);
    const seen = new Set<string>();
    let cursor = 0;
    do {
      const page = pageOf(all, cursor, 3);
      for (const item of page.items) seen.add(item);
      cursor = page.next;
      for (const item of page.items) if (item.startsWith('going')) all.delete(item);
      all.add(`new ${cursor}`);
    } while (cursor !== 0);
    expect(staying.filter((name) => !seen.has(name))).toEqual([]);
  });
});

describe('matcher', () => {
  it.each([
    ['*', ['', 'any'], []],
    ['a*', ['a', 'abc', 'a\nb'], ['ba']],
    ['a?c', ['abc', 'a.c'], ['ac', 'abbc']],
    ['a.b*', ['a.b', 'a.b.c'], ['aXb']],
    ['[a-c]x', ['ax', 'cx'], ['dx', '-x']],
    ['[c-a]x', ['bx'], ['dx']],
    ['[^a]x', ['bx', '^x'], ['ax', 'x']],
    [String.raw`\*[\]x]`, ['*]', '*x'], ['a]', '**']],
    ['(a|b)+$', ['(a|b)+$'], ['a', 'ab']],
  ] as const)('%s', (pattern, matching, others) => {
    const matches = matcher(pattern);
    expect([matching.filter((text) => !matches(text)), others.filter(matches)]).toEqual([[], []]);
  });
});

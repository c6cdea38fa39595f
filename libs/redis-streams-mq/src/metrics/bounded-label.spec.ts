import { BoundedLabel, OTHER_LABEL } from './bounded-label.js';

describe('BoundedLabel', () => {
  it('passes the first values on and calls all later ones (other)', () => {
    const label = new BoundedLabel(2);
    expect(['a', 'b', 'c', 'a', 'd', 'b'].map((value) => label.of(value))).toEqual([
      'a',
      'b',
      OTHER_LABEL,
      'a',
      OTHER_LABEL,
      'b',
    ]);
  });

  it('gives the place of a forgotten value to the next one', () => {
    const label = new BoundedLabel(1);
    label.of('a');
    expect(label.forget('b')).toBe(false);
    expect(label.forget('a')).toBe(true);
    expect(label.of('b')).toBe('b');
    expect(label.of('a')).toBe(OTHER_LABEL);
  });
});

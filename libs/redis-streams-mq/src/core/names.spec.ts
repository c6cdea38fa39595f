import fc from 'fast-check';
import { MqInvalidNameError } from './errors.js';
import { assertGroupName, assertTopicName, nameProblem } from './names.js';

const RULE = 'a name has 1 to 249 of the characters A-Z, a-z, 0-9, ".", "_" and "-", and is not "." or ".."';
const LEGAL = 'ABCXYZabcxyz0189._-'.split('');

describe('names', () => {
  it.each(['a', 'orders', 'Orders.v1_eu-west', '...', '.a', '-', '_', '0', 'x'.repeat(249)])(
    'DATA-07 accepts %j',
    (name) => {
      expect(nameProblem('topic', name)).toBeUndefined();
      expect(() => assertTopicName(name)).not.toThrow();
      expect(() => assertGroupName(name)).not.toThrow();
    },
  );

  it.each([
    ['', 'topic name is empty'],
    ['.', 'topic name "." is not allowed'],
    ['..', 'topic name ".." is not allowed'],
    ['a b', 'topic name "a b" contains " "'],
    ['orders:p', 'topic name "orders:p" contains ":"'],
    ['{orders}', 'topic name "{orders}" contains "{"'],
    ['orders\n', 'topic name "orders\\n" contains "\\n"'],
    ['größe', 'topic name "größe" contains "ö"'],
    ['a😀', 'topic name "a😀" contains "😀"'],
    ['x'.repeat(250), `topic name "${'x'.repeat(60)}..." has 250 characters`],
    [undefined, 'topic name is not a string but undefined'],
    [null, 'topic name is not a string but null'],
    [42, 'topic name is not a string but number'],
    [['orders'], 'topic name is not a string but object'],
    [Object.create(null), 'topic name is not a string but object'],
  ])('DATA-07 refuses %j and says why, with the rule', (name, fault) => {
    expect(nameProblem('topic', name)).toBe(`${fault}: ${RULE}`);
  });

  it('throws with a code, and names the kind', () => {
    expect(() => assertTopicName('a b')).toThrow(MqInvalidNameError);
    expect(() => assertGroupName('a b')).toThrow(
      expect.objectContaining({
        code: 'MQ_INVALID_NAME',
        message: `group name "a b" contains " ": ${RULE}`,
        context: { kind: 'group', name: '"a b"' },
      }),
    );
  });

  it('DATA-07 accepts every string over the alphabet but the two dots', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...LEGAL), minLength: 1, maxLength: 249 }), (name) => {
        expect(nameProblem('group', name) === undefined).toBe(name !== '.' && name !== '..');
      }),
    );
  });

  it('DATA-07 refuses every string with one foreign character in it', () => {
    const foreign = fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }).filter((c) => !/^[\w.-]$/.test(c));
    const part = fc.string({ unit: fc.constantFrom(...LEGAL), maxLength: 20 });
    fc.assert(
      fc.property(part, foreign, part, (before, character, after) => {
        expect(nameProblem('topic', before + character + after)).toContain('contains');
      }),
    );
  });
});

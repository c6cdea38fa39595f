import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { asText } from './reply.js';
import { call, callForMany, callMulti, defineForMany, defineMultiKeyScript, defineScript } from './script.js';

const named = defineScript({
  name: 'named',
  keys: ['from', 'to'],
  args: ['count', 'mode'],
  lua: `\nreturn redis.call('COPY', from, to)\n`,
  decode: asText,
});
const multi = defineMultiKeyScript({ name: 'multi', lua: 'return #KEYS', decode: asText });

describe('a script with named keys', () => {
  it('takes keys and arguments by name, in whatever order, and sends them by position', () => {
    const args = named.args({ to: 'b', from: 'a' }, { mode: 'fast', count: 3 }, ['x', Buffer.from('y')]);
    expect(args).toEqual([2, 'a', 'b', 3, 'fast', 'x', Buffer.from('y')]);
  });

  it('leaves keys out that it does not declare', () => {
    const place = { from: 'a', to: 'b', other: 'c' };
    expect(named.args(place, { count: 3, mode: 'fast' })).toEqual([2, 'a', 'b', 3, 'fast']);
  });

  it('names them in Lua, and says where the variable part begins', () => {
    expect(named.lua).toContain(
      "local from, to = KEYS[1], KEYS[2]\nlocal count, mode = ARGV[1], ARGV[2]\nlocal rest = 3\nreturn redis.call('COPY', from, to)",
    );
  });

  it('needs neither', () => {
    const bare = defineScript({ name: 'bare', keys: [], args: [], lua: 'return rest', decode: asText });
    expect(bare.args({}, {}, ['x'])).toEqual([0, 'x']);
    expect(bare.lua).toMatch(/\nlocal rest = 1\nreturn rest$/);
  });

  it('is called by its arguments and decoded by its own function', () => {
    const { script, args } = call(named, { from: 'a', to: 'b' }, { count: 1, mode: '' });
    expect(script).toBe(named);
    expect(args).toEqual([2, 'a', 'b', 1, '']);
    expect(script.decode(Buffer.from('text'))).toBe('text');
  });
});

describe('a script over any number of keys', () => {
  it('takes them as a list', () => {
    expect(callMulti(multi, ['a', 'b', 'c'], [5, 'x']).args).toEqual([3, 'a', 'b', 'c', 5, 'x']);
    expect(callMulti(multi, [], []).args).toEqual([0]);
  });
});

describe('a script for many places', () => {
  const forMany = defineForMany(named);

  it('takes the keys of all, then how many keys and arguments each has, and the arguments of all', () => {
    const calls = [
      call(named, { from: 'a', to: 'b' }, { count: 1, mode: 'x' }),
      call(named, { from: 'c', to: 'd' }, { count: 2, mode: 'y' }),
    ];
    expect(callForMany(forMany, calls).args).toEqual([4, 'a', 'b', 'c', 'd', 2, 2, 1, 'x', 2, 'y']);
  });

  it('gives an error of one beside the answers of the others', () => {
    const refused = new Error('WRONGTYPE');
    const outcomes = forMany.decode([Buffer.from('first'), refused, []]);
    expect(outcomes).toMatchObject([
      { ok: true, value: 'first' },
      { ok: false, error: refused },
      { ok: false, error: { code: 'MQ_REDIS_UNEXPECTED_REPLY' } },
    ]);
  });
});

it('the digest is that of what the server is sent', () => {
  for (const { lua, sha } of [named, multi]) expect(sha).toBe(createHash('sha1').update(lua).digest('hex'));
  expect(named.sha).not.toBe(multi.sha);
});

describe('every script of the library', () => {
  interface Source {
    readonly name: string;
    readonly lua: string;
  }
  const folder = join(__dirname, 'scripts');
  const files = readdirSync(folder).filter((file) => file.endsWith('.ts'));

  async function sources(): Promise<Source[]> {
    const modules = await Promise.all(
      files.map((file) => import(join(folder, file)) as Promise<Record<string, unknown>>),
    );
    return modules.flatMap((exported) => Object.values(exported)).filter(isSource);
  }

  function isSource(value: unknown): value is Source {
    return typeof value === 'object' && value !== null && typeof (value as Source).lua === 'string';
  }

  /** Without what all scripts begin with. */
  const bodyOf = ({ lua }: Source): string => lua.slice(lua.indexOf('\n--') + 1);
  const codeOf = (lua: string): string => lua.replaceAll(/^\s*--.*$/gm, '');

  it('has a name of its own', async () => {
    const names = (await sources()).map(({ name }) => name);
    expect(names.filter((name) => !/^[a-z]+(-[a-z]+)*$/.test(name))).toEqual([]);
    expect(new Set(names).size).toBe(names.length);
  });

  it('says first what it does, what it returns and why it may run twice', async () => {
    for (const source of await sources()) {
      const header = /^(--.*\n)+/.exec(bodyOf(source))?.[0] ?? '';
      expect([source.name, header]).toEqual([source.name, expect.stringMatching(/Returns|Writes|Answers/)]);
      expect([source.name, header]).toEqual([source.name, expect.stringMatching(/Twice|Writes nothing/)]);
    }
  });

  it('uses each key and argument that it takes', async () => {
    for (const source of await sources()) {
      const taken = [...source.lua.matchAll(/^local (.+) = (?:KEYS|ARGV)\[1\].*$/gm)].flatMap(([, names]) =>
        names!.split(', '),
      );
      const code = codeOf(bodyOf(source));
      const unused = taken.filter((name) => !new RegExp(`\\b${name}\\b`).test(code));
      expect([source.name, unused]).toEqual([source.name, []]);
    }
  });

  it('knows no time but the server’s, and no number as text but in full', async () => {
    for (const source of await sources()) {
      const code = codeOf(bodyOf(source));
      expect([source.name, /tostring|os\.|'TIME'|math\.random/.exec(code)]).toEqual([source.name, null]);
    }
  });

  it('builds no key', async () => {
    for (const source of await sources()) {
      const first = [...codeOf(bodyOf(source)).matchAll(/redis\.p?call\('[A-Z]+',([^,)]*)/g)].map(([, key]) => key!);
      expect([source.name, first.filter((key) => key.includes('..'))]).toEqual([source.name, []]);
    }
  });
});

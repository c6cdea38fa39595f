import { createHash } from 'node:crypto';
import fengari, { type LuaFunction, type LuaState } from 'fengari';
import { pack, unpack, type Packable } from './message-pack.js';
import { ReplyError, Status, type Answer, type Bytes } from './values.js';

const { lua, lauxlib, lualib, to_luastring: text } = fengari;

/** Redis runs Lua 5.1, and this is 5.3 with whole numbers of 32 bits: numbers are doubles in both after this. */
const PRELUDE = `
unpack = table.unpack
local parse = tonumber
function tonumber(value, base)
  local number
  if base then number = parse(value, base) else number = parse(value) end
  return number and number + 0.0
end
`;

/** Runs the queue's scripts as the server does: `redis.call`, `redis.pcall` and `cmsgpack` are there. */
export class LuaScripts {
  private readonly L: LuaState = lauxlib.luaL_newstate();
  private readonly compiled = new Map<string, number>();

  /** @param execute - runs one command; throws `ReplyError`. */
  constructor(private readonly execute: (name: string, args: readonly Bytes[]) => Answer) {
    const { L } = this;
    lualib.luaL_openlibs(L);
    this.table('redis', {
      call: () => this.command(true),
      pcall: () => this.command(false),
      error_reply: () => this.reply('err'),
      status_reply: () => this.reply('ok'),
      sha1hex: () => {
        this.push(createHash('sha1').update(this.string(1), 'latin1').digest('hex'));
        return 1;
      },
    });
    this.table('cmsgpack', {
      pack: () => {
        this.push(pack(this.packable(1)));
        return 1;
      },
      unpack: () => {
        let value: Packable;
        try {
          value = unpack(this.string(1));
        } catch (error) {
          return this.raise((error as Error).message);
        }
        this.pushPackable(value);
        return 1;
      },
    });
    this.load(PRELUDE);
    lua.lua_call(L, 0, 0);
  }

  /** @throws ReplyError, also for what Lua itself throws. */
  run(source: string, keys: readonly Bytes[], args: readonly Bytes[]): Answer {
    const { L } = this;
    const top = lua.lua_gettop(L);
    try {
      this.global('KEYS', keys);
      this.global('ARGV', args);
      this.load(source);
      const status = lua.lua_pcall(L, 0, 1, 0);
      if (status !== lua.LUA_OK) {
        const message = this.string(-1);
        throw new ReplyError(/^[A-Z]+ /.test(message) ? message : `ERR ${message}`);
      }
      const answer = this.answer(-1);
      if (answer instanceof ReplyError) throw answer;
      return answer;
    } finally {
      lua.lua_settop(L, top);
    }
  }

  private load(source: string): void {
    const { L } = this;
    let ref = this.compiled.get(source);
    if (ref === undefined) {
      const code = text(source);
      if (lauxlib.luaL_loadbuffer(L, code, code.length, text('@script')) !== lua.LUA_OK) {
        throw new ReplyError(`ERR Error compiling script: ${this.string(-1)}`);
      }
      ref = lauxlib.luaL_ref(L, lua.LUA_REGISTRYINDEX);
      this.compiled.set(source, ref);
    }
    lua.lua_rawgeti(L, lua.LUA_REGISTRYINDEX, ref);
  }

  private table(name: string, functions: Readonly<Record<string, LuaFunction>>): void {
    const { L } = this;
    lua.lua_createtable(L, 0, 0);
    for (const [key, fn] of Object.entries(functions)) {
      lua.lua_pushcfunction(L, fn);
      lua.lua_setfield(L, -2, text(key));
    }
    lua.lua_setglobal(L, text(name));
  }

  private global(name: string, values: readonly Bytes[]): void {
    this.push(values);
    lua.lua_setglobal(this.L, text(name));
  }

  private command(throws: boolean): number {
    const { L } = this;
    const args: Bytes[] = [];
    for (let i = 1; i <= lua.lua_gettop(L); i++) args.push(this.argument(i));
    const [name = '', ...rest] = args;
    let answer: Answer;
    try {
      answer = this.execute(name.toUpperCase(), rest);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      if (throws || !(error instanceof ReplyError)) return this.raise(message);
      answer = error;
    }
    this.push(answer);
    return 1;
  }

  private reply(field: 'ok' | 'err'): number {
    const value = this.string(1);
    lua.lua_createtable(this.L, 0, 1);
    this.push(value);
    lua.lua_setfield(this.L, -2, text(field));
    return 1;
  }

  private raise(message: string): number {
    this.push(message);
    return lua.lua_error(this.L);
  }

  private argument(index: number): Bytes {
    const type = lua.lua_type(this.L, index);
    if (type === lua.LUA_TNUMBER) return String(lua.lua_tonumber(this.L, index));
    if (type === lua.LUA_TSTRING) return this.string(index);
    this.raise('ERR Lua redis lib command arguments must be strings or integers');
    return '';
  }

  private string(index: number): Bytes {
    return Buffer.from(lua.lua_tostring(this.L, index)).toString('latin1');
  }

  private push(value: Answer): void {
    const { L } = this;
    lauxlib.luaL_checkstack(L, 4, null);
    if (value === null) lua.lua_pushboolean(L, false);
    else if (typeof value === 'number') lua.lua_pushnumber(L, value);
    else if (typeof value === 'string') {
      const bytes = Buffer.from(value, 'latin1');
      lua.lua_pushlstring(L, bytes, bytes.length);
    } else if (value instanceof Status || value instanceof ReplyError) {
      lua.lua_createtable(L, 0, 1);
      this.push(value instanceof Status ? value.text : value.message);
      lua.lua_setfield(L, -2, text(value instanceof Status ? 'ok' : 'err'));
    } else {
      lua.lua_createtable(L, value.length, 0);
      for (const [i, item] of value.entries()) {
        this.push(item);
        lua.lua_rawseti(L, -2, i + 1);
      }
    }
  }

  private answer(index: number): Answer {
    const { L } = this;
    switch (lua.lua_type(L, index)) {
      case lua.LUA_TSTRING:
        return this.string(index);
      case lua.LUA_TNUMBER:
        return Math.trunc(lua.lua_tonumber(L, index));
      case lua.LUA_TBOOLEAN:
        return lua.lua_toboolean(L, index) ? 1 : null;
      case lua.LUA_TTABLE:
        return this.tableAnswer(lua.lua_absindex(L, index));
      default:
        return null;
    }
  }

  private tableAnswer(index: number): Answer {
    const ok = this.field(index, 'ok');
    if (ok !== null) return new Status(ok);
    const error = this.field(index, 'err');
    if (error !== null) return new ReplyError(error);
    const { L } = this;
    lauxlib.luaL_checkstack(L, 4, null);
    const items: Answer[] = [];
    for (let i = 1; ; i++) {
      const type = lua.lua_rawgeti(L, index, i);
      if (type !== lua.LUA_TNIL) items.push(this.answer(-1));
      lua.lua_pop(L, 1);
      if (type === lua.LUA_TNIL) return items;
    }
  }

  private field(index: number, name: string): Bytes | null {
    const type = lua.lua_getfield(this.L, index, text(name));
    const value = type === lua.LUA_TSTRING ? this.string(-1) : null;
    lua.lua_pop(this.L, 1);
    return value;
  }

  private packable(index: number): Packable {
    const { L } = this;
    switch (lua.lua_type(L, index)) {
      case lua.LUA_TSTRING:
        return this.string(index);
      case lua.LUA_TNUMBER:
        return lua.lua_tonumber(L, index);
      case lua.LUA_TBOOLEAN:
        return lua.lua_toboolean(L, index);
      case lua.LUA_TTABLE: {
        const at = lua.lua_absindex(L, index);
        lauxlib.luaL_checkstack(L, 4, null);
        return Array.from({ length: lua.lua_rawlen(L, at) }, (_, i) => {
          lua.lua_rawgeti(L, at, i + 1);
          const item = this.packable(-1);
          lua.lua_pop(L, 1);
          return item;
        });
      }
      default:
        return null;
    }
  }

  private pushPackable(value: Packable): void {
    const { L } = this;
    lauxlib.luaL_checkstack(L, 4, null);
    if (value === null) lua.lua_pushnil(L);
    else if (typeof value === 'boolean') lua.lua_pushboolean(L, value);
    else if (typeof value === 'number' || typeof value === 'string') this.push(value);
    else {
      lua.lua_createtable(L, value.length, 0);
      for (const [i, item] of value.entries()) {
        this.pushPackable(item);
        lua.lua_rawseti(L, -2, i + 1);
      }
    }
  }
}

// The part of fengari that is used. It has no types of its own.
declare module 'fengari' {
  export type LuaState = { readonly _: unique symbol };
  export type LuaFunction = (L: LuaState) => number;
  interface Lua {
    readonly LUA_OK: number;
    readonly LUA_MULTRET: number;
    readonly LUA_REGISTRYINDEX: number;
    readonly LUA_TNIL: number;
    readonly LUA_TBOOLEAN: number;
    readonly LUA_TNUMBER: number;
    readonly LUA_TSTRING: number;
    readonly LUA_TTABLE: number;
    lua_call(L: LuaState, args: number, results: number): void;
    lua_pcall(L: LuaState, args: number, results: number, handler: number): number;
    lua_error(L: LuaState): number;
    lua_gettop(L: LuaState): number;
    lua_settop(L: LuaState, index: number): void;
    lua_pop(L: LuaState, count: number): void;
    lua_type(L: LuaState, index: number): number;
    lua_toboolean(L: LuaState, index: number): boolean;
    lua_tonumber(L: LuaState, index: number): number;
    lua_tostring(L: LuaState, index: number): Uint8Array;
    lua_rawlen(L: LuaState, index: number): number;
    lua_rawgeti(L: LuaState, index: number, at: number): number;
    lua_rawseti(L: LuaState, index: number, at: number): void;
    lua_getfield(L: LuaState, index: number, name: Uint8Array): number;
    lua_setfield(L: LuaState, index: number, name: Uint8Array): void;
    lua_setglobal(L: LuaState, name: Uint8Array): void;
    lua_createtable(L: LuaState, arraySize: number, hashSize: number): void;
    lua_pushnil(L: LuaState): void;
    lua_pushboolean(L: LuaState, value: boolean): void;
    lua_pushnumber(L: LuaState, value: number): void;
    lua_pushlstring(L: LuaState, value: Uint8Array, length: number): void;
    lua_pushcfunction(L: LuaState, fn: LuaFunction): void;
    lua_absindex(L: LuaState, index: number): number;
  }
  interface LuaAux {
    luaL_newstate(): LuaState;
    luaL_loadbuffer(L: LuaState, source: Uint8Array, length: number, name: Uint8Array): number;
    luaL_ref(L: LuaState, table: number): number;
    luaL_checkstack(L: LuaState, size: number, message: Uint8Array | null): void;
  }
  interface LuaLib {
    luaL_openlibs(L: LuaState): void;
  }
  const fengari: {
    readonly lua: Lua;
    readonly lauxlib: LuaAux;
    readonly lualib: LuaLib;
    readonly to_luastring: (text: string) => Uint8Array;
  };
  export default fengari;
}

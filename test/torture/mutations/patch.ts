import { sha1 } from '../../../libs/redis-streams-mq/src/redis/script.js';

interface ScriptText {
  readonly name: string;
  readonly lua: string;
  readonly sha: string;
}

/** The text with each `from` replaced. @throws if one is not there any more: the mutation has to be written anew. */
export function mutated(name: string, lua: string, changes: readonly (readonly [from: string, to: string])[]): string {
  return changes.reduce((text, [from, to]) => {
    if (!text.includes(from)) throw new Error(`the script ${name} no longer has: ${from}`);
    return text.replaceAll(from, to);
  }, lua);
}

/** Changes a script for everybody in this process. */
export function mutateScript(script: ScriptText, ...changes: (readonly [from: string, to: string])[]): void {
  const lua = mutated(script.name, script.lua, changes);
  Object.assign(script, { lua, sha: sha1(lua) });
}

/** Replaces a method, or the getter of a property, for everybody in this process; also a private one. */
export function mutateClass<T extends object>(
  { name, prototype }: { readonly name: string; readonly prototype: T },
  member: string,
  body: (this: T, ...args: never[]) => unknown,
): void {
  const found = Object.getOwnPropertyDescriptor(prototype, member);
  if (found === undefined) throw new Error(`${name} no longer has ${member}`);
  const change = found.get === undefined ? { value: body } : { get: body as () => unknown };
  Object.defineProperty(prototype, member, { ...found, ...change });
}

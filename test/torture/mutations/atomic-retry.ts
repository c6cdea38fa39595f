import { Connection } from '../../../libs/redis-streams-mq/src/redis/connection.js';
import type { Outcome } from '../../../libs/redis-streams-mq/src/redis/reply.js';
import { sha1, type ScriptCall } from '../../../libs/redis-streams-mq/src/redis/script.js';
import { fail, type FailReply } from '../../../libs/redis-streams-mq/src/redis/scripts/settle.script.js';
import { mutateClass, mutated } from './patch.js';

const ADD = [
  "redis.call('HSET', retryItems, item, cmsgpack.pack({ attempts, reason, fields, cmsgpack.pack(history) }))",
  "redis.call('ZADD', retry, num(at + tonumber(delay)), item)",
] as const;
const ACKNOWLEDGE = "redis.call('XACK', source, group, id)";
const DELETE = "if onRetryStream == '1' then redis.call('XDEL', source, id) else";
const IS_GONE = "#redis.call('XPENDING', source, group, id, id, 1) == 0";
/** An id, an item id, attempts, a delay and an error an entry. */
const WIDTH = 5;

function variant(...changes: [string, string][]): typeof fail {
  const lua = mutated(fail.name, fail.lua, changes);
  return { ...fail, lua, sha: sha1(lua) };
}

const first = variant([ADD[0], ''], [ADD[1], ''], [DELETE, "if onRetryStream ~= '1' then"]);
const second = variant([ACKNOWLEDGE, ''], [IS_GONE, 'false']);
/** Of the arguments of EVALSHA: a count, the keys, and what comes before the entries. */
const head = fail.args(
  { source: '', lease: '', retry: '', retryItems: '', commit: '', crash: '', held: '' },
  fenced(),
).length;

function fenced(): { token: string; group: string; onRetryStream: string } {
  return { token: '', group: '', onRetryStream: '' };
}

const runAll = Reflect.get(Connection.prototype, 'runAll') as Connection['runAll'];

mutateClass(Connection, 'runAll', async function (calls: readonly ScriptCall<unknown>[]) {
  const isFail = ({ script }: ScriptCall<unknown>): boolean => script.name === fail.name;
  const outcomes = await runAll.call(
    this,
    calls.map((call) => (isFail(call) ? { ...call, script: first } : call)),
  );
  for (const [i, call] of calls.entries()) {
    const outcome = outcomes[i] as Outcome<FailReply>;
    if (!isFail(call) || !outcome.ok || outcome.value.status === 'fenced') continue;
    const { results } = outcome.value;
    const moved = call.args.slice(head).filter((_, at) => results[Math.floor(at / WIDTH)] === 'moved');
    if (moved.length === 0) continue;
    const [added] = await runAll.call(this, [{ script: second, args: [...call.args.slice(0, head), ...moved] }]);
    if (!added!.ok) outcomes[i] = added!;
  }
  return outcomes;
});

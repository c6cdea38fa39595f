import { Lane, type LaneItem } from '../../../libs/redis-streams-mq/src/producer/lane.js';
import { dead, fail } from '../../../libs/redis-streams-mq/src/redis/scripts/settle.script.js';
import { mutateClass, mutateScript } from './patch.js';

const IS_GONE = "#redis.call('XPENDING', source, group, id, id, 1) == 0";

for (const script of [fail, dead]) mutateScript(script, [IS_GONE, 'false']);
mutateClass(Lane, 'verify', async (unknown: readonly LaneItem[]) => [...unknown]);

import { page } from '../../../libs/redis-streams-mq/src/redis/scripts/pending.script.js';
import { mutateScript } from './patch.js';

mutateScript(page, ['entries[#entries + 1] = found[1]', 'table.insert(entries, 1, found[1])']);

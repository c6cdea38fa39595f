import { Reader } from '../../../libs/redis-streams-mq/src/consumer/reader.js';
import { mutateClass } from './patch.js';

mutateClass(Reader, 'withDeadline', (_connection: unknown, reply: Promise<unknown>) => reply);
mutateClass(Reader, 'replace', () => undefined);

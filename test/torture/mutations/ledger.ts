import { LedgerCheck } from '../../../libs/redis-streams-mq/src/consumer/ledger-check.js';
import { mutateClass } from './patch.js';

mutateClass(LedgerCheck, 'repair', async () => undefined);

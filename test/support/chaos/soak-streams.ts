import type { Redis } from 'ioredis';
import type { DeadReason } from '../../../libs/redis-streams-mq/src/core/events.js';
import { fromWireEventId } from '../../../libs/redis-streams-mq/src/core/event-id.js';
import type { Keys } from '../../../libs/redis-streams-mq/src/core/keys.js';
import type { BuriedMessage, StoredMessage } from './soak-evidence.js';
import type { MessageName } from './soak-record.js';
import { GROUPS, PARTITIONS, TOPIC } from './soak-setup.js';

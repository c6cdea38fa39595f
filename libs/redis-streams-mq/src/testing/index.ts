// Public API of `nestjs-redis-streams-mq/testing`. What is not named here may change in any release.

export { MqTestingModule } from './mq-testing.module.js';
export { MqTesting } from './mq-testing.js';
export type { GroupSelection, MqTestingOptions, ProviderOverrides } from './mq-testing.js';
export type { MessageState, PendingMessage, RetryingMessage, SentMessage } from './message-state.js';

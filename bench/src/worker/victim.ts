/** Entry of an instance that takes messages and never finishes one, until it is killed. Its settings are its first argument. */
import { openContender } from '../contenders/contenders.js';
import type { ContenderContext, Topic } from '../contenders/contender.js';

const { context, topic } = JSON.parse(process.argv[2] ?? '') as { context: ContenderContext; topic: Topic };
const contender = await openContender('ours', context);
process.on('disconnect', () => process.exit());
await contender.consume(topic, () => new Promise(() => undefined), {});

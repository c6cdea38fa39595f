// Nothing behind the exports of the package can be imported. Compiled against the packed package alone.
// @ts-expect-error TS2307: no deep import
export { Keys } from 'nestjs-redis-streams-mq/dist/core/keys.js';
// @ts-expect-error TS2307: no deep import
export { composeMq } from 'nestjs-redis-streams-mq/nest/compose.js';

import { MqAdminError } from '../core/errors.js';
import { compareStreamIds, isStreamId } from '../core/stream-id.js';

/** Where a letter stands: the topic's letters are ordered by stream id, equal ones by partition. */
export interface Place {
  readonly partition: number;
  readonly id: string;
}

export function comparePlaces(a: Place, b: Place): number {
  return compareStreamIds(a.id, b.id) || a.partition - b.partition;
}

export function placeText({ partition, id }: Place): string {
  return `${partition}/${id}`;
}

/** @throws MqAdminError `MQ_INVALID_ARGUMENT` */
export function parsePlace(id: unknown): Place {
  const [, partition, streamId] = (typeof id === 'string' && /^(\d{1,9})\/(\d+-\d+)$/.exec(id)) || [];
  if (partition === undefined || !isStreamId(streamId)) {
    throw new MqAdminError(
      'MQ_INVALID_ARGUMENT',
      `${JSON.stringify(id)} is not the id of a dead letter (<partition>/<stream id>)`,
    );
  }
  return { partition: Number(partition), id: streamId };
}

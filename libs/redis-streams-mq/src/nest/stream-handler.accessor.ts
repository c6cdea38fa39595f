import { Injectable } from '@nestjs/common';
import { STREAM_HANDLER_METADATA, type StreamSubscription } from './stream-handler.decorator.js';

/** The only reader of what `@StreamHandler` has written. */
@Injectable()
export class StreamHandlerAccessor {
  /** The subscriptions of a method, inherited ones included; none when it is no handler. */
  subscriptions(prototype: object, method: string): readonly StreamSubscription[] {
    return (Reflect.getMetadata(STREAM_HANDLER_METADATA, prototype, method) as StreamSubscription[] | undefined) ?? [];
  }
}

/** Which handlers a consumer process runs. */
export type ConsumerWorkload = { readonly kind: 'flights' } | { readonly kind: 'json-lines'; readonly topic: string };

export interface ConsumerSettings {
  readonly runId: string;
  readonly workload: ConsumerWorkload;
}

/** One handler call, as the process that made it saw it. Times are those of `monotonicMicros`. */
export interface HandlerCall {
  readonly group: string;
  /** Position of the message in the order of publishing. */
  readonly row: number;
  /** `failed` is followed by a retry, `rejected` by the dead-letter queue. */
  readonly outcome: 'handled' | 'failed' | 'rejected';
  readonly startedAt: number;
  readonly endedAt: number;
}

/** One line that a handler stores; the event id makes storing it twice harmless. */
export interface StoredResult {
  readonly group: string;
  readonly eventId: string;
  readonly key: string;
  readonly value: number;
}

export type ToConsumer = { readonly type: 'deploy-fix' } | { readonly type: 'stop' };

export type FromConsumer =
  | { readonly type: 'ready'; readonly url: string }
  | { readonly type: 'records'; readonly calls: readonly HandlerCall[]; readonly results: readonly StoredResult[] }
  | { readonly type: 'fix-deployed' };

/** How long Redis (or its like) may keep what it has accepted in memory alone. */
export type Durability = 'off' | 'everysec' | 'always';

/** Addresses of the servers that run for a scenario. */
export interface Urls {
  readonly redis?: string;
  readonly cluster?: readonly { readonly host: string; readonly port: number }[];
  readonly nats?: string;
  readonly amqp?: string;
}

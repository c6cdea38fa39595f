export type PayloadSize = '130 B' | '1 KB' | '16 KB';

export interface Payload {
  readonly id: number;
  readonly customer: string;
  readonly items: readonly { readonly sku: string; readonly quantity: number; readonly price: number }[];
  readonly note: string;
}

export interface Message {
  readonly key: string;
  readonly payload: Payload;
}

const BYTES: Readonly<Record<PayloadSize, number>> = { '130 B': 130, '1 KB': 1024, '16 KB': 16_384 };
const CUSTOMERS = 1000;

/** Orders whose JSON has exactly the size; ids from `first` on, and a thousand different keys. */
export function makeMessages(count: number, size: PayloadSize = '130 B', first = 0): Message[] {
  const items = itemsFor(BYTES[size]);
  return Array.from({ length: count }, (_, index) => {
    const id = first + index;
    const customer = `customer-${id % CUSTOMERS}`;
    const bare = { id, customer, items, note: '' };
    return { key: customer, payload: { ...bare, note: 'n'.repeat(BYTES[size] - JSON.stringify(bare).length) } };
  });
}

function itemsFor(bytes: number): Payload['items'] {
  const count = Math.max(1, Math.floor((bytes - 100) / 48));
  return Array.from({ length: count }, (_, index) => ({
    sku: `sku-${1000 + index}`,
    quantity: 1 + (index % 5),
    price: 1999,
  }));
}

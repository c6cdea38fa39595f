import { randomBytes } from 'node:crypto';

/** `<prefix>-<8 hex digits>`: a topic, group or key that no other test has. */
export const uniqueName = (prefix: string): string => `${prefix}-${randomBytes(4).toString('hex')}`;

import { Logger } from '@nestjs/common';
import { DEFAULT_INSTANCE } from './instance-name.js';

export type LogFields = Readonly<Record<string, unknown>>;

/** Where the queue logs: constant sentences with fields. */
export interface MqLogger {
  log(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  debug(message: string, fields?: LogFields): void;
}

const MAX_FIELD_LENGTH = 300;

/** Writes to Nest's logger, and so to the one of the application, as `sentence key=value key=value`. */
export class NestMqLogger implements MqLogger {
  private readonly logger: Logger;

  constructor(instanceName: string) {
    this.logger = new Logger(instanceName === DEFAULT_INSTANCE ? 'RedisStreamsMq' : `RedisStreamsMq:${instanceName}`);
  }

  log(message: string, fields?: LogFields): void {
    this.logger.log(line(message, fields));
  }

  warn(message: string, fields?: LogFields): void {
    this.logger.warn(line(message, fields));
  }

  error(message: string, fields?: LogFields): void {
    this.logger.error(line(message, fields));
  }

  debug(message: string, fields?: LogFields): void {
    this.logger.debug(line(message, fields));
  }
}

function line(message: string, fields: LogFields = {}): string {
  const texts = Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name}=${fieldText(value)}`);
  return [message, ...texts].join(' ');
}

function fieldText(value: unknown): string {
  const text = withoutCredentials(plainText(value));
  const cut = text.length > MAX_FIELD_LENGTH ? `${text.slice(0, MAX_FIELD_LENGTH)}...` : text;
  // Also keeps line breaks of foreign text from forging log lines.
  return /^[\w.,:;@/#*+-]+$/.test(cut) ? cut : JSON.stringify(cut);
}

function plainText(value: unknown): string {
  if (isError(value)) return value.name === 'Error' ? value.message : `${value.name}: ${value.message}`;
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.map(plainText).join(', ');
  try {
    return typeof value === 'object' && value !== null ? JSON.stringify(value) : String(value);
  } catch {
    return `a ${typeof value} that cannot be shown`;
  }
}

/** By shape: an error may come from another realm. Of an error no more than this is shown; ioredis' hold the command. */
function isError(value: unknown): value is Error {
  return typeof value === 'object' && value !== null && 'message' in value && typeof value.message === 'string';
}

/** Addresses may hold passwords: `redis://user:secret@host`. */
function withoutCredentials(text: string): string {
  return text.replace(/\/\/\S*@/g, '//***@');
}

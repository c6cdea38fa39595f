import { MqValidationError, type ValidationIssue } from '../core/errors.js';

/** Of a nested payload; beyond it nobody reads. */
const MAX_DEPTH = 10;

/**
 * What a pipe threw, as an error that lists what is wrong with which field, so that the dead letter does: Nest's exceptions
 * have a message that says no more than "Bad Request Exception". The error itself where it lists nothing.
 */
export function withIssues(error: unknown): unknown {
  try {
    if (error instanceof MqValidationError) return error;
    const response = typeof error === 'object' && error !== null && 'response' in error ? error.response : error;
    const issues = fromResponse(response);
    return issues.length === 0 ? error : new MqValidationError(issues, { cause: error });
  } catch {
    // Anything may have been thrown, also what throws when it is looked at.
    return error;
  }
}

/** The shapes that pipes give: texts, objects of class-validator, issues of a schema, or any of them under `message`. */
function fromResponse(response: unknown): readonly ValidationIssue[] {
  if (Array.isArray(response)) return response.flatMap((item) => fromItem(item, '', 0));
  if (typeof response !== 'object' || response === null) return [];
  for (const name of ['message', 'errors', 'issues']) {
    const listed: unknown = Reflect.get(response, name);
    if (Array.isArray(listed)) return fromResponse(listed);
    if (name === 'message' && typeof listed === 'object' && listed !== null) return grouped(listed);
  }
  return [];
}

/** By property: `{ id: ['id must be an integer number'] }`. */
function grouped(messages: object): ValidationIssue[] {
  return Object.entries(messages).flatMap(([path, texts]) =>
    (Array.isArray(texts) ? texts : [texts]).map((text) => ({ path, message: String(text) })),
  );
}

function fromItem(item: unknown, parent: string, depth: number): ValidationIssue[] {
  if (typeof item === 'string') return [{ path: parent, message: item }];
  if (typeof item !== 'object' || item === null || depth > MAX_DEPTH) return [];
  const { property, constraints, children, message, path } = item as Record<string, unknown>;
  if (typeof message === 'string')
    return [{ path: Array.isArray(path) ? path.map(String).join('.') : parent, message }];
  const own = typeof property === 'string' ? `${parent === '' ? '' : `${parent}.`}${property}` : parent;
  const texts = typeof constraints === 'object' && constraints !== null ? Object.values(constraints) : [];
  const nested = Array.isArray(children) ? children.flatMap((child) => fromItem(child, own, depth + 1)) : [];
  return [...texts.map((text) => ({ path: own, message: String(text) })), ...nested];
}

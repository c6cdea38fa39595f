import type { Topic } from './contender.js';

export function groupNames({ groups }: Pick<Topic, 'groups'>): string[] {
  return Array.from({ length: groups }, (_, index) => `group-${index}`);
}

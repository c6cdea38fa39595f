import type { Assignment } from '../core/assignment.js';
import type { MqEvents } from '../core/events.js';

export interface OverCapWarningDeps {
  readonly group: string;
  readonly instance: string;
  readonly events: MqEvents;
}

/** Says, each time it changes, which partitions this instance owns beyond its cap because nobody else can. */
export class OverCapWarning {
  private warned = '';

  constructor(private readonly deps: OverCapWarningDeps) {}

  look({ overCap, owners }: Assignment): void {
    const { group, instance, events } = this.deps;
    const mine = [...overCap].filter((id) => owners.get(id) === instance).sort();
    const text = mine.join(' ');
    if (text === this.warned) return;
    this.warned = text;
    if (mine.length === 0) return;
    events.emit('warning', {
      message: 'partitions are taken over maxLeasedPartitionsPerConsumer, since no other member can take them',
      fields: { group, partitions: mine },
    });
  }
}

import { clearLine, cursorTo } from 'node:readline';
import type { WriteStream } from 'node:tty';

const WIDTH = 20;

/** A line redrawn in place on a terminal; elsewhere a line each ten per cent. */
export class ProgressBar {
  private lastTenth = 0;

  constructor(private readonly stream: WriteStream) {}

  update(done: number, total: number, note: string): void {
    const share = total === 0 ? 1 : done / total;
    if (this.stream.isTTY) {
      cursorTo(this.stream, 0);
      this.stream.write(`${formatBar(share)} ${note}`.slice(0, (this.stream.columns || 80) - 1));
      clearLine(this.stream, 1);
      return;
    }
    const tenth = Math.floor(share * 10);
    if (tenth === this.lastTenth) return;
    this.lastTenth = tenth;
    this.stream.write(`${formatBar(share)} ${note}\n`);
  }

  /** Leaves the line as it is and goes to the next. */
  end(): void {
    if (this.stream.isTTY) this.stream.write('\n');
  }
}

/** For example `██████░░░░░░░░░░░░░░  30 %`. */
export function formatBar(share: number): string {
  const filled = Math.floor(share * WIDTH);
  const percent = `${Math.floor(share * 100)}`.padStart(3);
  return `${'█'.repeat(filled)}${'░'.repeat(WIDTH - filled)} ${percent} %`;
}

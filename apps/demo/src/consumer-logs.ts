const KEPT_LINES = 40;

/**
 * What the consumer processes log. The demo makes handlers fail on purpose, so by default it is kept back and shown only
 * when the run went wrong.
 */
export class ConsumerLogs {
  private lines: string[] = [];

  constructor(private readonly isLive: boolean) {}

  add(instance: number, text: string): void {
    const line = `[${instance}] ${text}`;
    if (this.isLive) console.log(line);
    else this.lines = [...this.lines.slice(1 - KEPT_LINES), line];
  }

  printKept(): void {
    if (this.lines.length === 0) return;
    console.error(`The last that the consumer processes logged:\n${this.lines.join('\n')}\n`);
  }
}

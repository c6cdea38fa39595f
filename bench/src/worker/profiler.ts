import { writeFileSync } from 'node:fs';
import { Session } from 'node:inspector';

/** A CPU profile of what is timed, and of nothing else; the last one wins. */
export class Profiler {
  private readonly session = new Session();

  constructor(private readonly file: string) {
    this.session.connect();
    this.session.post('Profiler.enable');
    this.session.post('Profiler.setSamplingInterval', { interval: 200 });
  }

  start(): void {
    this.session.post('Profiler.start');
  }

  stop(): void {
    this.session.post('Profiler.stop', (error, result) => {
      if (error === null) writeFileSync(this.file, JSON.stringify(result.profile));
    });
  }
}

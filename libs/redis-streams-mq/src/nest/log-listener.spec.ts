import { recordingLogger, type LoggedLine } from '../../../../test/support/nest-fakes.js';
import { systemClock, type Clock } from '../core/clock.js';
import { MqEvents } from '../core/events.js';
import { LogListener } from './log-listener.js';

function listen() {
  let now = 0;
  const clock: Clock = { ...systemClock, monotonic: () => now };
  const events = new MqEvents();
  const { logger, lines } = recordingLogger();
  const listener = new LogListener(events, logger, clock);
  listener.start();
  return { events, listener, lines, pass: (ms: number) => (now += ms) };
}

const fault = { component: 'renewer', class: 'transient', error: new Error('ECONNRESET'), retryInMs: 100 } as const;
const ref = { topic: 'orders', partition: 3, group: 'billing' };
const brief = ({ level, fields }: LoggedLine) => ({ level, suppressed: fields['suppressed'] });

describe('LogListener', () => {
  it('STR-13 CONN-16 logs one line per component in five seconds and counts the others', () => {
    const { events, lines, pass } = listen();
    for (let i = 0; i < 10; i += 1) events.emit('fault', fault);
    events.emit('fault', { ...fault, component: 'mover' });
    pass(4_999);
    events.emit('fault', fault);
    pass(1);
    events.emit('fault', fault);
    expect(lines.map(({ fields }) => [fields['component'], fields['suppressed']])).toEqual([
      ['renewer', undefined],
      ['mover', undefined],
      ['renewer', 10],
    ]);
  });

  it('logs one line when a component recovers, and none when its fault was not logged', () => {
    const { events, lines } = listen();
    events.emit('recovered', { component: 'renewer', afterMs: 5 });
    for (let i = 0; i < 20; i += 1) {
      events.emit('fault', fault);
      events.emit('recovered', { component: 'renewer', afterMs: 5 });
    }
    expect(lines.map(({ message }) => message)).toEqual([
      'a part of the queue failed and will try again',
      'a part of the queue recovered',
    ]);
  });

  it('logs what a person has to mend as an error', () => {
    const { events, lines } = listen();
    events.emit('fault', { ...fault, class: 'configuration' });
    events.emit('dead', { ...ref, id: '1-0', attempt: 5, reason: 'exhausted', error: new Error('no') });
    events.emit('healed', { ...ref, position: '0', reason: 'NOGROUP' });
    expect(lines.map(brief)).toEqual([{ level: 'error' }, { level: 'error' }, { level: 'error' }]);
  });

  it('logs a lost connection once and its return once', () => {
    const { events, lines } = listen();
    events.emit('connection', { name: 'command', state: 'ready' });
    for (let i = 0; i < 5; i += 1) {
      events.emit('connection', { name: 'command', state: 'error', error: new Error('ECONNREFUSED') });
      events.emit('connection', { name: 'command', state: 'closed' });
    }
    events.emit('connection', { name: 'command', state: 'ready' });
    expect(lines.map(({ level }) => level)).toEqual(['debug', 'warn', 'log']);
  });

  it('does not log what a parser or validator says, which quotes the payload', () => {
    const { events, lines } = listen();
    const error = new SyntaxError('Unexpected token s, "secret" is not valid JSON');
    events.emit('dead', { ...ref, id: '1-0', attempt: 1, reason: 'malformed', error });
    expect(lines[0]?.fields).toMatchObject({ ...ref, reason: 'malformed', error: 'SyntaxError' });
  });

  it('says nothing after stop()', () => {
    const { events, listener, lines } = listen();
    listener.stop();
    listener.stop();
    events.emit('fault', fault);
    expect(lines).toEqual([]);
  });
});

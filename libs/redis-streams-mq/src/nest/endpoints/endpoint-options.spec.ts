import { endpointPaths, endpointProblems } from './endpoint-options.js';

describe('endpoint options', () => {
  it('have default paths, which are not explicit', () => {
    const { ready, live, metrics } = endpointPaths({});
    expect([ready, live, metrics].map((each) => each?.path)).toEqual(['/health', '/health/live', '/metrics']);
    expect([ready, live, metrics].some((each) => each?.isExplicit)).toBe(false);
  });

  it('can be moved, whatever the slashes, and switched off one by one', () => {
    const { ready, live, metrics } = endpointPaths({ health: 'status//ready/', metrics: false });
    expect([ready?.path, live?.path, metrics]).toEqual(['/status/ready', '/status/ready/live', null]);
    expect(endpointPaths({ health: '/' }).live?.path).toBe('/live');
  });

  it.each([
    [true, 'endpoints must be false or an object'],
    [{ health: true }, 'endpoints.health must be a path or false'],
    [{ metrics: 5 }, 'endpoints.metrics must be a path or false'],
    [{ decorators: [1] }, 'endpoints.decorators must be a list of class decorators'],
    [{ helth: '/x' }, 'endpoints.helth is unknown; there are health, metrics, decorators'],
    [{ metrics: 'health/live' }, 'endpoints.health and endpoints.metrics both serve /health/live'],
  ])('refuse %j', (options, problem) => {
    expect(endpointProblems(options)).toEqual([problem]);
  });

  it.each([undefined, false, {}, { health: false, metrics: '/m', decorators: [() => undefined] }])(
    'take %j',
    (options) => {
      expect(endpointProblems(options)).toEqual([]);
    },
  );
});

/** Paths are relative to the application's global prefix, and neutral to its versions. */
export interface MqEndpointsOptions {
  /**
   * Path of the readiness probe; the liveness probe is at `<path>/live`. `false` for none of them.
   *
   * A path that is given must be free: the boot fails when the application serves it. The default one gives way.
   *
   * @defaultValue '/health'
   */
  readonly health?: string | false;

  /**
   * Path of the metrics in the text format of Prometheus; `false` for none. It gives way also to the `PrometheusModule`
   * of `@willsoto/nestjs-prometheus`, which serves the same metrics.
   *
   * @defaultValue '/metrics'
   */
  readonly metrics?: string | false;

  /**
   * Decorators for the controllers: what a global guard looks for to let probes pass, or `ApiExcludeController()`.
   *
   * Hazard: a global guard that denies makes probes fail with 401 or 403.
   *
   * @defaultValue none
   */
  readonly decorators?: readonly ClassDecorator[];
}

/** One path to serve. */
export interface EndpointPath {
  readonly path: string;
  /** Whether the path was given, and not the default. */
  readonly isExplicit: boolean;
  /** The option that it comes from. */
  readonly option: string;
}

export interface EndpointPaths {
  readonly ready: EndpointPath | null;
  readonly live: EndpointPath | null;
  readonly metrics: EndpointPath | null;
}

export function endpointPaths(options: MqEndpointsOptions): EndpointPaths {
  const ready = pathOf(options.health, '/health', 'endpoints.health');
  return {
    ready,
    live: ready === null ? null : { ...ready, path: normalPath(`${ready.path}/live`) },
    metrics: pathOf(options.metrics, '/metrics', 'endpoints.metrics'),
  };
}

/** As Nest registers it: one slash before each part. */
export function normalPath(path: string): string {
  return `/${path.split('/').filter(Boolean).join('/')}`;
}

export function endpointProblems(options: unknown): string[] {
  if (options === undefined || options === false) return [];
  if (typeof options !== 'object' || options === null) return ['endpoints must be false or an object'];
  const known = ['health', 'metrics', 'decorators'];
  const { health, metrics, decorators } = options as Record<string, unknown>;
  const problems = Object.keys(options)
    .filter((name) => !known.includes(name))
    .map((name) => `endpoints.${name} is unknown; there are ${known.join(', ')}`);
  if (!isPath(health)) problems.push('endpoints.health must be a path or false');
  if (!isPath(metrics)) problems.push('endpoints.metrics must be a path or false');
  if (
    decorators !== undefined &&
    !(Array.isArray(decorators) && decorators.every((each) => typeof each === 'function'))
  ) {
    problems.push('endpoints.decorators must be a list of class decorators');
  }
  if (problems.length > 0) return problems;
  const { ready, live, metrics: exposition } = endpointPaths(options as MqEndpointsOptions);
  const clashes = exposition !== null && [ready?.path, live?.path].includes(exposition.path);
  return clashes ? [`endpoints.health and endpoints.metrics both serve ${exposition.path}`] : [];
}

function isPath(value: unknown): boolean {
  return value === undefined || value === false || typeof value === 'string';
}

function pathOf(given: string | false | undefined, byDefault: string, option: string): EndpointPath | null {
  if (given === false) return null;
  return { path: normalPath(given ?? byDefault), isExplicit: given !== undefined, option };
}

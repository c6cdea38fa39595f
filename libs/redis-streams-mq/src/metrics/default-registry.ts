import { register } from 'prom-client';
import type { MetricsRegistry } from './shared-metrics.js';

/** Where metrics are kept when no registry is given: prom-client's global one. */
export const defaultRegistry: MetricsRegistry = register;

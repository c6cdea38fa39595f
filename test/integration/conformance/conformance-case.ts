import type { EngineUnderTest } from '../../support/conformance/engine-under-test.js';

/** One thing that both engines do alike. */
export interface ConformanceCase {
  /** The guarantee. */
  readonly name: string;
  readonly run: (world: { readonly engine: EngineUnderTest }) => Promise<void>;
}

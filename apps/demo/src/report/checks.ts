/** One thing that must be true after the run. */
export interface Check {
  readonly name: string;
  readonly passed: boolean;
  /** What was found instead, if it did not pass. */
  readonly found: string;
}

export function check(name: string, passed: boolean, found: string): Check {
  return { name, passed, found };
}

export function checkEqual(name: string, actual: number, expected: number): Check {
  return check(`${name}: ${expected}`, actual === expected, `found ${actual}`);
}

export function formatChecks(checks: readonly Check[]): string {
  const lines = checks.map(({ name, passed, found }) => (passed ? `  ✓ ${name}` : `  ✗ ${name}; ${found}`));
  const failed = checks.filter(({ passed }) => !passed).length;
  const summary = failed === 0 ? `All ${checks.length} checks passed.` : `${failed} of ${checks.length} checks FAILED.`;
  return [...lines, '', summary].join('\n');
}

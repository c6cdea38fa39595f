import { blocksOf, diagnosticsOf, runSample } from '../support/doc-samples.js';

const samples = blocksOf('docs/testing.md', 'ts');

describe('the samples of docs/testing.md', () => {
  it('compile', () => {
    expect(samples).toHaveLength(3);
    expect(diagnosticsOf(samples)).toEqual([]);
  }, 120_000);

  // Each of them is a test file.
  for (const sample of samples) runSample(sample, require);
});

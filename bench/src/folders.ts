import { dirname, join } from 'node:path';

/** The folder of this workspace: four above this file once it is built (bench/dist/bench/src). */
export const benchFolder = join(import.meta.dirname, '../../..');
export const rootFolder = dirname(benchFolder);

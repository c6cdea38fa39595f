import { findServer } from './scripts/find-server.mjs';

// For test/support: each test file starts a server of its own with it.
const server = findServer();
if (server) process.env.MQ_REDIS_SERVER = server;

// Nest 12 and some of what it and testcontainers use are ES modules only, which jest on Node 20 cannot require: swc makes
// CommonJS of them and of our TypeScript.
const esmPackages = [
  '@nestjs',
  '@borewit',
  '@tokenizer',
  'cookie',
  'file-type',
  'get-port',
  'load-esm',
  'strtok3',
  'token-types',
  'uint8array-extras',
  'uuid',
];

const swc = {
  jsc: {
    target: 'es2022',
    parser: { syntax: 'typescript', decorators: true },
    transform: { legacyDecorator: true, decoratorMetadata: true },
    keepClassNames: true,
  },
  module: { type: 'commonjs' },
  sourceMaps: 'inline',
  swcrc: false,
};

const project = (displayName, testMatch) => ({
  displayName,
  testMatch: [`<rootDir>/${testMatch}`],
  rootDir: import.meta.dirname,
  testEnvironment: 'node',
  testEnvironmentOptions: { customExportConditions: ['@redis-streams-mq/source', 'require', 'node', 'default'] },
  transform: { '^.+\\.(ts|m?js)$': ['@swc/jest', swc] },
  // A package may lie in another one's node_modules (light-my-request has a cookie of its own): look at the last one.
  transformIgnorePatterns: [`/node_modules/(?!.*/node_modules/)(?!(${esmPackages.join('|')})/)`],
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
});

export default {
  testTimeout: 30_000,
  maxWorkers: 3,
  projects: [
    project('unit', '{libs/*/src,scripts}/**/*.spec.ts'),
    project('integration', 'test/integration/**/*.spec.ts'),
    project('e2e', 'test/e2e/**/*.spec.ts'),
    project('chaos', 'test/chaos/**/*.spec.ts'),
  ],
};

/**
 * A project that installs the tarball: one for each major version of Nest and of ioredis.
 * @typedef {object} Setting
 * @property {string} name
 * @property {Record<string, string>} dependencies
 */

const shared = {
  '@types/express': '^5.0.0',
  '@types/node': '^20.19.0',
  fengari: '^0.1.4',
  'prom-client': '^15.1.3',
  'reflect-metadata': '^0.2.2',
  rxjs: '^7.8.1',
};

const nest = (version) =>
  Object.fromEntries(
    ['common', 'core', 'platform-express', 'platform-fastify', 'terminus', 'testing'].map((part) => [
      `@nestjs/${part}`,
      `^${version}.0.0`,
    ]),
  );

/** @type {readonly Setting[]} */
export const settings = [12, 11].flatMap((nestMajor) =>
  [6, 5].map((ioredisMajor) => ({
    name: `nest${nestMajor}-redis${ioredisMajor}`,
    dependencies: { ...shared, ...nest(nestMajor), ioredis: `^${ioredisMajor}.0.0` },
  })),
);

/** Only once: what they look at is the same everywhere. */
export const bundlers = { esbuild: '^0.28.0', webpack: '^5.100.0' };

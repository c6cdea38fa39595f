import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

const names = ['redis-server', 'valkey-server'];

/**
 * The server to start: what MQ_REDIS_SERVER names, else the first redis-server or valkey-server on the PATH.
 * @returns {string | undefined} its path
 */
export function findServer() {
  if (process.env.MQ_REDIS_SERVER) return process.env.MQ_REDIS_SERVER;
  const folders = (process.env.PATH ?? '').split(delimiter).filter(Boolean);
  return names.flatMap((name) => folders.map((folder) => join(folder, name))).find(isExecutable);
}

function isExecutable(file) {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

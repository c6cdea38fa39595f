// Installs redis-server on Debian and Ubuntu, for root only: `node scripts/install-redis.mjs`.
import { spawnSync } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { findServer } from './find-server.mjs';

/** Debian asks this program whether it may start a service that has just been installed; 101 means no. */
const policy = '/usr/sbin/policy-rc.d';

if (!findServer()) {
  if (!existsSync('/usr/bin/apt-get') || process.getuid?.() !== 0) {
    console.error('Redis can be installed by this script on Debian and Ubuntu only, and only as root.');
    process.exit(1);
  }
  console.log('Installing the Debian package redis-server. Its service on port 6379 is not started now;');
  console.log('`systemctl disable redis-server` keeps it from starting with the system.');
  const isOurPolicy = !existsSync(policy);
  if (isOurPolicy) writeFileSync(policy, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  try {
    apt('update', '-qq');
    apt('install', '-qq', '-y', '-o=Dpkg::Use-Pty=0', '--no-install-recommends', 'redis-server');
  } finally {
    if (isOurPolicy) rmSync(policy, { force: true });
  }
}

function apt(...args) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const { status } = spawnSync('apt-get', args, { env, stdio: ['ignore', 'inherit', 'inherit'] });
  if (status !== 0) throw new Error(`apt-get ${args.join(' ')} failed with code ${status}`);
}

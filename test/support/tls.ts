import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../scripts/server-process.mjs';
import { describeWithServer, startRedis, type TestRedis } from './redis-server.js';

/** A Redis that speaks TLS on `tlsPort`, for localhost and 127.0.0.1, and without TLS on `redis.port`, for looking. */
export interface TlsRedis {
  readonly redis: TestRedis;
  readonly tlsPort: number;
  /** Certificate (PEM) of the authority that signed the server's. */
  readonly ca: string;
  readonly caFile: string;
  /** The same of an authority that did not. */
  readonly otherCa: string;
  stop(): Promise<void>;
}

/** `describe` for what needs openssl to make certificates. */
export function describeWithTls(name: string, body: () => void): void {
  if (spawnSync('openssl', ['version']).status === 0) describeWithServer(name, body);
  else describe.skip(`${name} (skipped: needs openssl on the PATH)`, body);
}

export async function startTlsRedis(args: string[] = []): Promise<TlsRedis> {
  const dir = mkdtempSync(join(tmpdir(), 'mq-tls-'));
  const file = (name: string): string => join(dir, name);
  makeCertificates(dir);
  const tlsPort = await freePort();
  const tls = ['--tls-port', String(tlsPort), '--tls-auth-clients', 'no', '--tls-ca-cert-file', file('ca.crt')];
  const own = ['--tls-cert-file', file('server.crt'), '--tls-key-file', file('server.key')];
  const redis = await startRedis({ args: [...tls, ...own, ...args] });
  return {
    redis,
    tlsPort,
    ca: readFileSync(file('ca.crt'), 'utf8'),
    caFile: file('ca.crt'),
    otherCa: readFileSync(file('other-ca.crt'), 'utf8'),
    async stop() {
      await redis.stop();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

function makeCertificates(dir: string): void {
  const openssl = (...args: string[]): void => void execFileSync('openssl', args, { cwd: dir, stdio: 'pipe' });
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  for (const name of ['ca', 'other-ca']) {
    const files = ['-keyout', `${name}.key`, '-out', `${name}.crt`];
    openssl('req', '-x509', ...newKey, ...files, '-days', '2', '-subj', `/CN=${name}`);
  }
  writeFileSync(join(dir, 'names'), 'subjectAltName=DNS:localhost,IP:127.0.0.1\n');
  openssl('req', ...newKey, '-keyout', 'server.key', '-out', 'server.csr', '-subj', '/CN=localhost');
  const signed = ['-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial', '-extfile', 'names'];
  openssl('x509', '-req', '-in', 'server.csr', '-out', 'server.crt', '-days', '2', ...signed);
}

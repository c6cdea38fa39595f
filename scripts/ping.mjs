import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';

/**
 * Sends PING over a connection of its own and resolves with the answer's first line, such as `+PONG` or `-LOADING ...`.
 * Rejects when nothing answers in time. Speaks the protocol itself, so that it works before anything is installed.
 * @param {string} url redis:// or rediss://, with or without user and password
 * @param {number} [timeoutMs]
 * @returns {Promise<string>}
 */
export async function ping(url, timeoutMs = 1000) {
  const { protocol, hostname, port, username, password } = new URL(url);
  const host = hostname.replace(/^\[|\]$/g, '');
  const address = { host, port: Number(port || 6379) };
  const credentials = [username, password].filter(Boolean).map(decodeURIComponent);
  const commands = password ? [['AUTH', ...credentials], ['PING']] : [['PING']];
  return new Promise((resolve, reject) => {
    const socket = protocol === 'rediss:' ? connectTls({ ...address, servername: host }) : connect(address);
    const finish = (settle, value) => {
      socket.destroy();
      settle(value);
    };
    let received = '';
    socket.setTimeout(timeoutMs, () => finish(reject, new Error(`no answer within ${timeoutMs} ms`)));
    socket.on('error', (error) => finish(reject, error));
    socket.on('close', () => reject(new Error('the connection was closed')));
    socket.on('data', (chunk) => {
      received += chunk;
      const lines = received.split('\r\n').slice(0, -1);
      const answer = lines.find((line) => line.startsWith('-')) ?? lines[commands.length - 1];
      if (answer) finish(resolve, answer);
    });
    for (const command of commands) socket.write(encode(command));
  });
}

/** @param {string[]} words */
const encode = (words) =>
  `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')}`;

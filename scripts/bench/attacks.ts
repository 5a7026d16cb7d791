/**
 * What hostile clients without a credential send to use up memory. Each attack holds its
 * connections until it ends.
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ServiceName } from './service.ts';

export type Ports = Readonly<Record<ServiceName, number>>;

export interface Attack {
  readonly name: string;
  /** Resolves while the connections are open and the most memory is used. */
  run(ports: Ports, sockets: Socket[]): Promise<void>;
}

const CONNECTIONS = 1_000;
const SECONDS = 5;

/** From eight networks: one of them is limited to a part. */
async function open(port: number, number: number, sockets: Socket[]): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port, localAddress: `127.0.1.${1 + (number % 8)}` });
  // The server refuses some, which is its defence.
  socket.on('error', () => {});
  sockets.push(socket);
  await Promise.race([once(socket, 'connect'), once(socket, 'close')]).catch(() => {});
  return socket;
}

/** Opens connections that each send a text and never end their request. */
async function hold(port: number, text: string, sockets: Socket[]): Promise<void> {
  for (let number = 0; number < CONNECTIONS; number += 1) {
    const socket = await open(port, number, sockets);
    if (socket.writable) socket.write(text);
  }
  await sleep(1_000);
}

/** Opens connections, then sends a request on all of them at once. */
async function burst(port: number, text: string, sockets: Socket[]): Promise<void> {
  for (let number = 0; number < CONNECTIONS; number += 1) await open(port, number, sockets);
  for (const socket of sockets) {
    if (socket.writable) socket.write(text);
  }
  await sleep(SECONDS * 1_000);
}

/** Sends requests on each connection, one after the other, and reads the replies or does not. */
async function flood(
  port: number,
  connections: number,
  sockets: Socket[],
  text: (number: number) => string,
  reads = true,
): Promise<void> {
  let isOver = false;
  for (let number = 0; number < connections; number += 1) {
    const socket = await open(port, number, sockets);
    let sent = 0;
    const send = () => {
      if (!isOver && socket.writable) socket.write(text(number * 1_000_000 + sent));
      sent += 1;
    };
    if (reads) socket.on('data', send);
    else for (let count = 0; count < 100; count += 1) send();
    send();
  }
  await sleep(SECONDS * 1_000);
  isOver = true;
}

const post = (path: string, body: string, length = body.length, headers = '') => {
  const head = `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n`;
  return `${head}${headers}Content-Length: ${length}\r\n\r\n${body}`;
};
const get = (path: string, headers = '') => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n${headers}`;
const wrongPassword = (number: number) =>
  post(
    '/api/auth/login',
    JSON.stringify({ username: `nobody-${number}`, password: 'wrong for measuring' }),
  );

const LARGE_BODY = `{"key":"${'A'.repeat(60_000)}"}`;
const ANSWER = `/answer/${randomUUID()}`;
const WRONG_KEY = `X-Link-Key: ${'A'.repeat(43)}\r\n`;

export const ATTACKS: readonly Attack[] = [
  {
    name: '1,000 bodies of 8 KiB without their last byte',
    run: ({ identity }, sockets) =>
      hold(identity, post('/api/auth/login', ' '.repeat(8_191), 8_192), sockets),
  },
  {
    name: '1,000 bodies of 64 KiB without their last byte',
    run: ({ webhook }, sockets) =>
      hold(webhook, post('/webhook', ' '.repeat(65_535), 65_536), sockets),
  },
  {
    name: '1,000 complete bodies of 60 KB with a wrong token',
    run: ({ webhook }, sockets) =>
      burst(webhook, post('/webhook?token=wrong', LARGE_BODY), sockets),
  },
  {
    name: '1,000 complete answers of 60 KB with a wrong key',
    run: ({ secrets }, sockets) =>
      burst(secrets, post(ANSWER, LARGE_BODY, LARGE_BODY.length, WRONG_KEY), sockets),
  },
  {
    name: '1,000 answers of 1.5 MB with a wrong key, of which 60 KB arrive',
    run: ({ secrets }, sockets) =>
      burst(secrets, post(ANSWER, LARGE_BODY, 1_500_000, WRONG_KEY), sockets),
  },
  {
    name: '1,000 heads of 15 KiB without their end',
    run: ({ secrets }, sockets) => hold(secrets, get('/', `X: ${'a'.repeat(15_000)}`), sockets),
  },
  {
    name: '64 clients with wrong passwords',
    run: ({ identity }, sockets) => flood(identity, 64, sockets, wrongPassword),
  },
  {
    name: '500 connections that send 100 requests each and do not read',
    run: ({ secrets }, sockets) =>
      flood(secrets, 500, sockets, () => get('/openapi.json', '\r\n'), false),
  },
];

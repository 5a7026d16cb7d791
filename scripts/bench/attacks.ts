/**
 * What hostile clients without a credential send to use up memory. Each attack holds its
 * connections until it ends.
 */
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

const post = (path: string, body: string, length = body.length) => {
  const head = `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n`;
  return `${head}Content-Length: ${length}\r\n\r\n${body}`;
};
const get = (path: string, headers = '') => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n${headers}`;
const wrongPassword = (number: number) =>
  post(
    '/api/auth/login',
    JSON.stringify({ username: `nobody-${number}`, password: 'wrong for measuring' }),
  );

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

/** Ports: for servers of a test, and for programs that bind them later. */
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import type { Owner } from './owner.ts';

/**
 * Linux chooses the ports of `listen(0)` and of clients from 32768 on, so none of them is taken.
 */
const FIRST = 10_000;
const END = 32_768;

/**
 * Lets a server listen on a free port. It is closed with its connections when its owner ends.
 * @returns the port
 */
export async function listenOn(owner: Owner, server: Server, host = '127.0.0.1'): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket.on('close', () => sockets.delete(socket)));
  });
  owner.after(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  await once(server.listen(0, host), 'listening');
  const bound = server.address();
  assert.ok(typeof bound === 'object' && bound);
  return bound.port;
}

/** @returns different ports that nothing uses */
export async function freePorts(count: number): Promise<string[]> {
  const ports = new Set<string>();
  while (ports.size < count) {
    const port = randomInt(FIRST, END);
    if (await isFree(port)) ports.add(String(port));
  }
  return [...ports];
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening');
  } catch {
    return false;
  }
  server.close();
  await once(server, 'close');
  return true;
}

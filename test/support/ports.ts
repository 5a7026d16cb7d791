/** Ports for programs that bind them later. */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Linux chooses the ports of `listen(0)` and of clients from 32768 on, so none of them is taken. */
const FIRST = 10_000;
const END = 32_768;

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

/** An address that swallows packets, like that of a machine that has gone. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';

const LISTEN = `
  const server = require('node:net').createServer();
  server.listen({ host: process.argv[1], port: process.argv[2], backlog: 1 }, () => {
    process.stdout.write('listening');
  });`;

/** A stopped process does not accept connections. The kernel accepts two for it, and no more. */
export async function startSwallowing(
  owner: { after(fn: () => void): void },
  host: string,
  port: number,
): Promise<void> {
  const listener = spawn(process.execPath, ['-e', LISTEN, host, String(port)]);
  owner.after(() => listener.kill('SIGKILL'));
  await once(listener.stdout, 'data');
  listener.kill('SIGSTOP');
  for (const _place of [1, 2]) {
    const socket = connect(port, host).on('error', () => {});
    owner.after(() => socket.destroy());
    await once(socket, 'connect');
  }
}

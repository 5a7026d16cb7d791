/** Servers that pass connections on to another port of this host. */
import { connect, createServer } from 'node:net';

/** @param change what a client sends, before it is passed on */
export const createRelay = (port: number, change = (sent: Buffer) => sent) =>
  createServer((near) => {
    const far = connect(port, '127.0.0.1');
    near.on('error', () => {}).on('close', () => far.destroy());
    far.on('error', () => {}).on('close', () => near.destroy());
    near.on('data', (sent) => far.write(change(sent)));
    far.pipe(near);
  });

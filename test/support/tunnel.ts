/** A stretch of network that can fall silent: connections stay open, and what is sent into them is lost. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

export interface Tunnel {
  /** The given database URL, by way of here. */
  readonly url: string;
  /** From now on nothing passes, in either direction, on the connections there are and on new ones. */
  swallow(): void;
  /** New connections pass; those that were swallowed stay lost. */
  passNew(): void;
}

interface Owner {
  after(fn: () => Promise<void>): void;
}

export async function startTunnel(owner: Owner, databaseUrl: string): Promise<Tunnel> {
  const here = new URL(databaseUrl);
  const port = Number(here.port);
  const sockets = new Set<Socket>();
  let isSilent = false;
  const lost = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(port, '127.0.0.1');
    if (isSilent) lost.add(near).add(far);
    for (const [one, other] of [[near, far], [far, near]] as const) {
      sockets.add(one);
      one.on('data', (chunk) => void (lost.has(one) || other.write(chunk)));
      one.on('error', () => {}).on('close', () => {
        sockets.delete(one);
        if (!lost.has(one)) other.destroy();
      });
    }
  });
  owner.after(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const bound = server.address();
  here.port = String(typeof bound === 'object' ? bound?.port : '');
  return {
    url: here.href,
    swallow() {
      isSilent = true;
      for (const socket of sockets) lost.add(socket);
    },
    passNew() {
      isSilent = false;
    },
  };
}

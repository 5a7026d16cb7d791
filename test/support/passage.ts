/** A stretch of network before a database, on which something may happen to what passes. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

export interface Passage {
  /** The given database URL, by way of here. */
  readonly url: string;
  /** Both ends of every connection that is open. */
  readonly sockets: ReadonlySet<Socket>;
}

interface Owner {
  after(fn: () => Promise<void>): void;
}

/**
 * @param join gets both ends of each connection and lets through what shall pass
 * @param isHeld whether this end's close is kept from the other end
 */
export async function openPassage(owner: Owner, databaseUrl: string, join: (near: Socket, far: Socket) => void, isHeld: (end: Socket) => boolean = () => false): Promise<Passage> {
  const here = new URL(databaseUrl);
  const target = { port: Number(here.port), host: '127.0.0.1', noDelay: true };
  const sockets = new Set<Socket>();
  const server = createServer({ noDelay: true }, (near) => {
    const far = connect(target);
    join(near, far);
    for (const [one, other] of [[near, far], [far, near]] as const) {
      sockets.add(one);
      // What breaks on one side breaks on the other; the error itself is the point of a test, not news.
      one.on('error', () => {}).on('close', () => {
        sockets.delete(one);
        if (!isHeld(one)) other.destroy();
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
  return { url: here.href, sockets };
}

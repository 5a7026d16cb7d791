/** A stretch of network that can be cut: services reach their database through it. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

export interface Relay {
  /** The given database URL, by way of here. */
  readonly url: string;
  /** How many connections have been asked for so far, while it was open or answered by a proxy. */
  connections(): number;
  /**
   * Breaks every connection. New ones are refused, as where nobody listens, or accepted and closed at once, as by a
   * proxy that has no server behind it.
   */
  cut(manner?: 'refused' | 'closed'): Promise<void>;
  /** Lets connections through again. @param databaseUrl where the server listens now, if it has moved */
  mend(databaseUrl?: string): Promise<void>;
}

interface Owner {
  after(fn: () => Promise<void>): void;
}

export async function startRelay(owner: Owner, databaseUrl: string): Promise<Relay> {
  const state = { target: portOf(databaseUrl), through: true, connections: 0 };
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    state.connections += 1;
    if (!state.through) return void near.destroy();
    const far = connect(state.target, '127.0.0.1');
    for (const [socket, other] of [[near, far], [far, near]] as const) {
      sockets.add(socket);
      socket.pipe(other);
      // What breaks on one side breaks on the other; the error itself is the point of a test, not news.
      socket.on('error', () => {}).on('close', () => {
        sockets.delete(socket);
        other.destroy();
      });
    }
  });
  const close = async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  owner.after(close);
  const listen = async (port: number) => {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    const bound = server.address();
    return typeof bound === 'object' && bound ? bound.port : 0;
  };
  const own = await listen(0);
  const here = new URL(databaseUrl);
  here.port = String(own);
  return {
    url: here.href,
    connections: () => state.connections,
    async cut(manner = 'refused') {
      state.through = false;
      for (const socket of sockets) socket.destroy();
      if (manner === 'refused') await new Promise((resolve) => server.close(resolve));
    },
    async mend(movedTo) {
      if (movedTo !== undefined) state.target = portOf(movedTo);
      state.through = true;
      if (!server.listening) await listen(own);
    },
  };
}

const portOf = (url: string) => Number(new URL(url).port);

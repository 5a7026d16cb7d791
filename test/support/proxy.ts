/** A TCP proxy in front of a PostgreSQL server, for tests of a network or server that fails. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

export interface Proxy {
  /** The given database URL, through this proxy. */
  readonly url: string;
  /** The number of connections accepted so far. */
  connections(): number;
  /** Closes every connection. New ones are refused, or accepted and closed at once as by a proxy without a server. */
  cut(manner?: 'refused' | 'closed'): Promise<void>;
  /** Forwards nothing more, in both directions or in one, on open and on new connections. They stay open. */
  stall(what?: Stalled): void;
  /**
   * Drops the next reply that reports updated rows, and everything the server sends after it on that connection.
   * @returns resolves when that reply has arrived here
   */
  drop(): Promise<void>;
  /** Forwards new connections again. Stalled ones stay stalled. @param databaseUrl where the server is, if it moved */
  restore(databaseUrl?: string): Promise<void>;
}

type Stalled = 'all' | 'statements' | 'replies';
type Observe = () => (chunk: Buffer) => void;

interface Owner {
  after(fn: () => Promise<void>): void;
}

/** How PostgreSQL ends its reply to an UPDATE. Outside a transaction it is sent after the commit. */
const UPDATED = /UPDATE [1-9][0-9]*\0/;
const MAX_UPDATED_LENGTH = 'UPDATE 1000\0'.length;

/** @param observe is called for each connection. Its result gets everything the server sends on it. */
export async function startProxy(
  owner: Owner,
  databaseUrl: string,
  observe?: Observe,
): Promise<Proxy> {
  let target = portOf(databaseUrl);
  let mode: 'forward' | 'cut' | Stalled = 'forward';
  let accepted = 0;
  let dropped: (() => void) | null = null;
  /** Each connection's two sockets, with what is read from them. */
  const sockets = new Map<Socket, Stalled>();
  const stalled = new Set<Socket>();

  const server = createServer({ noDelay: true }, (client) => {
    accepted += 1;
    if (mode === 'cut') return void client.destroy();
    const upstream = connect({ port: target, host: '127.0.0.1', noDelay: true });
    for (const [socket, other, what] of [
      [client, upstream, 'statements'],
      [upstream, client, 'replies'],
    ] as const) {
      sockets.set(socket, what);
      if (mode === 'all' || mode === what) stalled.add(socket);
      // What breaks on one side breaks on the other. The error itself is what the test provokes.
      socket
        .on('error', () => {})
        .on('close', () => {
          sockets.delete(socket);
          if (!stalled.has(socket)) other.destroy();
        });
    }
    client.on('data', (chunk) => void (stalled.has(client) || upstream.write(chunk)));
    const read = observe?.();
    let isDropping = false;
    // The text searched for may arrive in two pieces.
    let tail = Buffer.alloc(0);
    upstream.on('data', (chunk: Buffer) => {
      if (isDropping || stalled.has(upstream)) return;
      read?.(chunk);
      const all = Buffer.concat([tail, chunk]);
      const at = dropped ? all.toString('latin1').search(UPDATED) : -1;
      if (at < 0) {
        tail = all.subarray(1 - MAX_UPDATED_LENGTH);
        return void client.write(chunk);
      }
      isDropping = true;
      client.write(all.subarray(tail.length, Math.max(at, tail.length)));
      dropped?.();
      dropped = null;
    });
  });
  const listen = async (port: number) => {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    const bound = server.address();
    return typeof bound === 'object' && bound ? bound.port : 0;
  };
  owner.after(async () => {
    for (const socket of sockets.keys()) socket.destroy();
    server.close();
  });
  const port = await listen(0);
  const url = new URL(databaseUrl);
  url.port = String(port);
  return {
    url: url.href,
    connections: () => accepted,
    async cut(manner = 'refused') {
      mode = 'cut';
      for (const socket of sockets.keys()) socket.destroy();
      if (manner === 'refused') await new Promise((resolve) => server.close(resolve));
    },
    stall(what = 'all') {
      mode = what;
      for (const [socket, kind] of sockets)
        if (what === 'all' || what === kind) stalled.add(socket);
    },
    drop: () => new Promise((resolve) => (dropped = resolve)),
    async restore(movedTo) {
      if (movedTo !== undefined) target = portOf(movedTo);
      mode = 'forward';
      if (!server.listening) await listen(port);
    },
  };
}

const portOf = (url: string) => Number(new URL(url).port);

/** A stretch of network that can keep back what a database has answered: the work is done, and who asked for it does not learn so. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

export interface Keeper {
  /** The given database URL, by way of here. */
  readonly url: string;
  /**
   * From the `nth` answer with this mark on, no answer passes any more on the connection it comes on.
   * @returns resolves when that answer has come
   */
  keep(mark: string, nth: number): Promise<void>;
}

interface Owner {
  after(fn: () => Promise<void>): void;
}

/** How PostgreSQL ends its answer to an UPDATE of one row. It is sent after the commit, where there is no transaction around it. */
export const UPDATED_ONE = 'UPDATE 1\0';

export async function startKeeper(owner: Owner, databaseUrl: string): Promise<Keeper> {
  const here = new URL(databaseUrl);
  const port = Number(here.port);
  const sockets = new Set<Socket>();
  let watch: { readonly mark: string; left: number; readonly found: () => void } | null = null;
  const server = createServer((near) => {
    const far = connect(port, '127.0.0.1');
    near.on('data', (chunk) => void far.write(chunk));
    let isKeeping = false;
    // A mark may come in two pieces.
    let tail = Buffer.alloc(0);
    far.on('data', (chunk: Buffer) => {
      const all = Buffer.concat([tail, chunk]);
      for (let at = 0; watch && !isKeeping && (at = all.indexOf(watch.mark, at)) >= 0; at += 1) {
        watch.left -= 1;
        if (watch.left > 0) continue;
        isKeeping = true;
        near.write(all.subarray(tail.length, Math.max(at, tail.length)));
        watch.found();
        watch = null;
      }
      if (isKeeping) return;
      tail = all.subarray(-(UPDATED_ONE.length - 1));
      near.write(chunk);
    });
    for (const [one, other] of [[near, far], [far, near]] as const) {
      sockets.add(one);
      one.on('error', () => {}).on('close', () => {
        sockets.delete(one);
        other.destroy();
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
    keep: (mark, nth) => new Promise((found) => (watch = { mark, left: nth, found })),
  };
}

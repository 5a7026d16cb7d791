import { Socket } from 'node:net';
import type { Host } from './url.ts';

export type Dialed = Readonly<{ host: Host; socket: Socket }>;

/** How long a host has to answer before the next try begins beside it. */
const HEAD_START_MS = 500;
const MAX_TRIES = 8; // at the same time

/**
 * Connects to the first host that answers. An address that no machine has any more swallows what is
 * sent to it. So the hosts are tried in turn, again and again, each time by a new look-up of the
 * name, beside the tries that have no answer yet (RFC 8305 does so for the addresses of one name).
 * @param seconds that each host has to answer
 * @param isClosed whether nobody needs the connection any more
 */
export function dial(hosts: readonly Host[], seconds: number, isClosed: () => boolean) {
  const end = performance.now() + seconds * 1_000 + (hosts.length - 1) * HEAD_START_MS;
  const sockets = new Set<Socket>();
  let begun = 0;
  let failure: NodeJS.ErrnoException = Object.assign(new Error(), { code: 'CONNECT_TIMEOUT' });

  return new Promise<Dialed>((resolve, reject) => {
    const timer = setInterval(tryNext, HEAD_START_MS);

    function stop() {
      clearInterval(timer);
      for (const socket of sockets) socket.destroy();
    }

    function fail() {
      stop();
      reject(failure);
    }

    function tryNext() {
      const host = hosts[begun % hosts.length];
      if (!host || isClosed() || performance.now() >= end) return fail();
      begun += 1;
      const [oldest] = sockets;
      if (oldest && sockets.size === MAX_TRIES) {
        sockets.delete(oldest);
        oldest.destroy();
      }
      // `postgres` reads `host` to check the certificate's name.
      const socket = Object.assign(new Socket(), { host: host.name });
      sockets.add(socket);
      socket.once('connect', () => {
        sockets.delete(socket);
        stop();
        resolve({ host, socket });
      });
      // Also after it has connected: until `postgres` listens, an error would end the process.
      socket.on('error', (error) => {
        if (!sockets.delete(socket)) return;
        failure = error;
        if (begun < hosts.length) tryNext();
        else if (sockets.size === 0) fail();
      });
      if (host.name.startsWith('/')) socket.connect(`${host.name}/.s.PGSQL.${host.port}`);
      else socket.connect(host.port, host.name);
    }

    tryNext();
  });
}

/** A stretch of network that can fall silent: connections stay open, and what is sent into them is lost. */
import type { Socket } from 'node:net';
import { openPassage } from './passage.ts';

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
  let isSilent = false;
  const lost = new Set<Socket>();
  const { url, sockets } = await openPassage(
    owner,
    databaseUrl,
    (near, far) => {
      if (isSilent) lost.add(near).add(far);
      near.on('data', (chunk) => void (lost.has(near) || far.write(chunk)));
      far.on('data', (chunk) => void (lost.has(far) || near.write(chunk)));
    },
    (end) => lost.has(end),
  );
  return {
    url,
    swallow() {
      isSilent = true;
      for (const socket of sockets) lost.add(socket);
    },
    passNew() {
      isSilent = false;
    },
  };
}

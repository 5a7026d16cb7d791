/** A stretch of network that can keep back what a database has answered: the work is done, and who asked for it does not learn so. */
import { openPassage } from './passage.ts';

export interface Keeper {
  /** The given database URL, by way of here. */
  readonly url: string;
  /**
   * From the next answer on that says that rows were updated, no answer passes any more on the connection it comes on.
   * @returns resolves when that answer has come
   */
  keep(): Promise<void>;
}

interface Owner {
  after(fn: () => Promise<void>): void;
}

/** How PostgreSQL ends its answer to an UPDATE. It is sent after the commit, where there is no transaction around it. */
const UPDATED = /UPDATE [1-9][0-9]*\0/;
const LONGEST = 'UPDATE 1000\0'.length;

export async function startKeeper(owner: Owner, databaseUrl: string): Promise<Keeper> {
  let found: (() => void) | null = null;
  const { url } = await openPassage(owner, databaseUrl, (near, far) => {
    near.on('data', (chunk) => void far.write(chunk));
    let isKeeping = false;
    // A mark may come in two pieces.
    let tail = Buffer.alloc(0);
    far.on('data', (chunk: Buffer) => {
      const all = Buffer.concat([tail, chunk]);
      const at = found && !isKeeping ? all.toString('latin1').search(UPDATED) : -1;
      if (at >= 0) {
        isKeeping = true;
        near.write(all.subarray(tail.length, Math.max(at, tail.length)));
        found?.();
        found = null;
      }
      if (isKeeping) return;
      tail = all.subarray(1 - LONGEST);
      near.write(chunk);
    });
  });
  return {
    url,
    keep: () => new Promise((resolve) => (found = resolve)),
  };
}

import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { Unavailable } from '../runtime/errors.ts';

/** A second connection. */
interface Other {
  readonly ready: Promise<Sql>;
  close(seconds: number): Promise<void>;
}

/**
 * Outside its session mode, a pooler gives a connection any server process for each transaction, so that settings and
 * prepared statements are lost. Without other work, it is the process used last, or each process in turn.
 */
export async function sharesProcesses(sql: Sql, second: Other): Promise<boolean> {
  const processId = async (client: Sql) =>
    (await client`select pg_backend_pid() as pid`.simple())[0]?.pid;
  const compare = async () => {
    const [other, own, others] = [await second.ready, new Set(), new Set()];
    for (let round = 0; round < 4; round += 1) {
      own.add(await processId(sql)).add(await processId(sql));
      others.add(await processId(other)).add(await processId(other));
    }
    return own.size > 1 || others.size > 1 || new Set([...own, ...others]).size < 2;
  };
  const isShared = await Promise.race([compare(), sleep(5_000, null, { ref: false })]).finally(() =>
    second.close(0),
  );
  if (isShared !== null) return isShared;
  throw new Unavailable('the connection pooler has too few connections; raise its pool size', true);
}

/** Database servers of a test's own, each behind a proxy whose address stays. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { promisify } from 'node:util';
import { startPostgres, withConnection } from '../../scripts/postgres.ts';
import { makeDirectory } from './directories.ts';
import type { Owner } from './owner.ts';
import { startProxy } from './proxy.ts';

const run = promisify(execFile);
const ROLE = `create role app superuser login password 'app-word'`;

/** The directory of a stopped server. To copy it takes a third of the CPU of a new database. */
async function createModel() {
  const directory = makeDirectory({ after }, 'hosts');
  const server = await startPostgres({ directory, durable: false });
  await withConnection(server.url, (sql) => sql.unsafe(ROLE));
  await server.stop();
  return directory;
}

const model = await createModel();

/** A server of its own. What it is called is in its table `name`. */
export async function startServer(t: Owner, name: string) {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-hosts-'));
  // With the owner of each file, whom PostgreSQL runs as.
  await run('cp', ['-a', `${model}/.`, directory]);
  let server = await startPostgres({ directory, durable: false });
  // In this order: a running server still writes files.
  t.after(async () => {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  });
  const query = (statement: string) => withConnection(server.url, (sql) => sql.unsafe(statement));
  await query(`create table name as select '${name}' as name`);
  const proxy = await startProxy(t, server.url);
  const stop = async () => {
    await server.stop();
    await proxy.cut();
  };
  const start = async () => {
    server = await startPostgres({ directory, durable: false });
    await proxy.restore(server.url);
  };
  return {
    /** The address of a proxy, which keeps it when the server restarts. */
    at: `127.0.0.1:${new URL(proxy.url).port}`,
    proxy,
    /** Its present URL, not through the proxy. */
    url: () => server.url,
    query,
    stop,
    start,
    /** Starts it again as a standby, which nobody promotes. */
    async restartAsStandby() {
      await stop();
      writeFileSync(join(directory, 'postgres/data/standby.signal'), '');
      await start();
    },
  };
}

export const urlOf = (servers: ReadonlyArray<string>, parameters = '') =>
  `postgres://app:app-word@${servers.join()}/postgres${parameters}`;

/** PostgreSQL servers of a test's own, each behind a proxy whose address stays. */
import { execFile } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { promisify } from 'node:util';
import { startPostgres, withConnection } from '../../scripts/postgres.ts';
import { removeTemporary } from '../../scripts/temporary.ts';
import { makeDirectory } from './directories.ts';
import type { Owner } from './owner.ts';
import { startProxy } from './proxy.ts';

const makePlace = () => mkdtempSync(join(tmpdir(), 'gatehouse-server-'));

/** A server that can be stopped or killed, and started again. */
export async function startServer(t: Owner, { durable = false, directory = makePlace() } = {}) {
  const launch = () => startPostgres({ directory, durable });
  let server = await launch();
  // In this order: a running server still writes files.
  t.after(async () => {
    await server.stop();
    removeTemporary(directory);
  });
  const proxy = await startProxy(t, server.url);
  /** Lets the proxy lead to another server. */
  const moveTo = async (other: typeof server) => {
    server = other;
    await proxy.restore(server.url);
  };
  return {
    proxy,
    /** The address of the proxy. */
    at: `127.0.0.1:${new URL(proxy.url).port}`,
    server: () => server,
    /** Its present URL, not through the proxy. */
    url: () => server.url,
    directory,
    /** The directory of its files. */
    data: join(directory, 'postgres/data'),
    query: (statement: string) => withConnection(server.url, (sql) => sql.unsafe(statement)),
    start: async () => moveTo(await launch()),
    moveTo,
    async stop() {
      await server.stop();
      await proxy.cut();
    },
    async kill() {
      process.kill(server.processId, 'SIGKILL');
      await server.ended;
      await proxy.cut();
    },
  };
}

/** The directory of a stopped server. To copy it takes a third of the CPU of a new database. */
async function createModel() {
  const directory = makeDirectory({ after }, 'model');
  const server = await startPostgres({ directory, durable: false });
  const role = `create role app superuser login password 'app-word'`;
  await withConnection(server.url, (sql) => sql.unsafe(role));
  await server.stop();
  return directory;
}
let model: Promise<string> | undefined;

/** A server with the role `app`. What it is called is in its table `name`. */
export async function startNamed(t: Owner, name: string) {
  model ??= createModel();
  const directory = makePlace();
  // With the owner of each file, whom PostgreSQL runs as.
  await promisify(execFile)('cp', ['-a', `${await model}/.`, directory]);
  const server = await startServer(t, { directory });
  await server.query(`create table name as select '${name}' as name`);
  return {
    ...server,
    /** Starts it again as a standby, which nobody promotes. */
    async restartAsStandby() {
      await server.stop();
      writeFileSync(join(server.data, 'standby.signal'), '');
      await server.start();
    },
  };
}

export const urlOf = (servers: ReadonlyArray<string>, parameters = '') =>
  `postgres://app:app-word@${servers.join()}/postgres${parameters}`;

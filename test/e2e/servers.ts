/** PostgreSQL servers, each with new data, that a test stops, kills and starts again. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { unprivilegedUser } from '../../scripts/binaries.ts';
import { withConnection } from '../../scripts/postgres.ts';
import type { Supervised } from '../../scripts/supervise.ts';
import type { Machine } from './ha/cluster.ts';
import { freePort } from './programs.ts';

/** Of all, and of no use elsewhere: everything listens on this host for the time of the test. */
export const PASSWORD = 'rehearsal';
const READY_MS = 60_000;

export type Server = Awaited<ReturnType<typeof createServer>>;

/** With `primary`, the URL of the server whose data it copies, as a standby. */
type Options = Readonly<{ host?: string; port?: number; primary?: string }>;

/**
 * @param bin the folder of the programs
 * @param settings such as `wal_level=logical`
 */
export async function createServer(
  { home, write, run }: Machine,
  bin: string,
  name: string,
  settings: readonly string[],
  { host = '127.0.0.1', port: given, primary }: Options = {},
) {
  const data = join(home, name);
  const options = { ...unprivilegedUser(), cwd: home, env: { LC_ALL: 'C.UTF-8' } };
  const words = ['-U', 'postgres', '-A', 'scram-sha-256', '-E', 'UTF8'];
  if (primary === undefined) {
    const password = ['--pwfile', write(`${name}-password`, PASSWORD)];
    execFileSync(join(bin, 'initdb'), ['-D', data, ...words, ...password], options);
  } else {
    const copy = ['-D', data, '-d', primary, '--write-recovery-conf', '--checkpoint', 'fast'];
    execFileSync(join(bin, 'pg_basebackup'), copy, options);
  }
  const port = given ?? (await freePort());
  const all = [`port=${port}`, `listen_addresses=${host}`, 'unix_socket_directories='];
  const flags = [...all, ...settings].flatMap((setting) => ['-c', setting]);
  const url = (role: string, database: string) =>
    `postgres://${role}:${PASSWORD}@${host}:${port}/${database}`;
  let running: Supervised | undefined;
  const end = async (signal: 'INT' | 'KILL') => {
    running?.tell(signal);
    await running?.ended;
  };
  return {
    host,
    port,
    url,
    /** As `pg_ctl stop --mode fast`. */
    stop: () => end('INT'),
    kill: () => end('KILL'),
    async start() {
      const deadline = Date.now() + READY_MS;
      for (let isEnded = true; !(await answers(url('postgres', 'postgres'))); await sleep(50)) {
        assert.ok(Date.now() < deadline, `${name} does not start: see ${name}.log`);
        // Processes of a killed server may still run. Until then, a new one ends at once.
        if (!isEnded) continue;
        isEnded = false;
        // A fast shutdown: processes of Citus stay connected.
        running = run(name, join(bin, 'postgres'), ['-D', data, ...flags], 'INT');
        void running.ended.then(() => {
          isEnded = true;
        });
      }
    },
  };
}

const answers = (url: string) =>
  withConnection(url, (sql) => sql`select`).then(
    () => true,
    () => false,
  );

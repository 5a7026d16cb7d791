/** The first step of `make e2e NAME=ha`: installs what is missing. */
import { install, ROOT_MAY } from '../packages.ts';
import { findProgram } from '../programs.ts';
import { runMain, SetupError } from '../../../scripts/setup-error.ts';
import { findPostgres } from './cluster.ts';

const PACKAGES = [
  'etcd-server',
  'patroni',
  'python3-etcd',
  'haproxy',
  'pgbouncer',
  'postgresql',
] as const;
const isComplete = () =>
  ['etcd', 'patroni', 'haproxy', 'pgbouncer'].every(findProgram) && findPostgres() !== undefined;

async function main(): Promise<number> {
  if (!isComplete()) install('patroni', ...PACKAGES);
  if (!isComplete()) {
    throw new SetupError(
      `make e2e NAME=ha needs etcd, Patroni, HAProxy, PgBouncer and PostgreSQL: install them from your system's packages${ROOT_MAY}`,
    );
  }
  return 0;
}

await runMain(main);

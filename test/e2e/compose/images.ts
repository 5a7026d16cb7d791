/**
 * Images with the names in compose.yaml and Dockerfile, from programs of this machine: Node, and
 * Debian's PostgreSQL and Caddy. Their versions differ from those in the names.
 */
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createBase } from '../image/base.ts';
import { createImageFiles } from '../image/files.ts';

/** Where Debian has one version of PostgreSQL. */
export const POSTGRES = '/usr/lib/postgresql/15';

/** What compose.yaml uses of the entry point of PostgreSQL's image. */
const POSTGRES_ENTRY_POINT = `#!/bin/sh
set -eu
data=/var/lib/postgresql/data
if ! test -e $data/PG_VERSION; then
  initdb --pgdata=$data --username=postgres --pwfile="$POSTGRES_PASSWORD_FILE" \\
    --auth-local=trust --auth-host=scram-sha-256 --no-locale --encoding=UTF8
  echo 'host all all all scram-sha-256' >> $data/pg_hba.conf
  pg_ctl --pgdata=$data --options='-c listen_addresses=' --wait start
  for script in /docker-entrypoint-initdb.d/*.sh; do "$script"; done
  pg_ctl --pgdata=$data --wait stop
fi
exec postgres -D $data -c 'listen_addresses=*'
`;
const POSTGRES_DOCKERFILE = `FROM scratch
COPY root /
COPY --chown=999:999 data /var/lib/postgresql
COPY --chown=999:999 run /var/run/postgresql
ENV PATH=/usr/bin:${POSTGRES}/bin
USER 999
STOPSIGNAL SIGINT
ENTRYPOINT ["/entrypoint"]
`;
const CADDY_DOCKERFILE = `FROM scratch
COPY root /
ENV PATH=/usr/bin XDG_CONFIG_HOME=/config XDG_DATA_HOME=/data
CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]
`;

/** @returns build contexts below the directory, by the name of the image */
export function createContexts(directory: string): ReadonlyMap<string, string> {
  const contexts = new Map<string, string>();
  const node = join(directory, 'node');
  mkdirSync(node);
  createBase(node);
  contexts.set('node:22-slim', node);
  contexts.set('postgres:18.4', createPostgres(join(directory, 'postgres')));
  contexts.set('caddy:2.11.2', createCaddy(join(directory, 'caddy')));
  return contexts;
}

function createPostgres(context: string): string {
  const files = createImageFiles(join(context, 'root'));
  files.placeShell();
  files.placeProgram('cat');
  files.placeDirectory(POSTGRES);
  files.placeDirectory(POSTGRES.replace('lib', 'share'));
  files.placeDirectory('/usr/share/zoneinfo');
  writeFileSync(files.at('entrypoint'), POSTGRES_ENTRY_POINT);
  chmodSync(files.at('entrypoint'), 0o755);
  writeUsers(files.at, 'postgres:x:999:999::/var/lib/postgresql:/bin/sh\n');
  for (const name of ['data', 'run']) mkdirSync(join(context, name));
  writeFileSync(join(context, 'Dockerfile'), POSTGRES_DOCKERFILE);
  return context;
}

function createCaddy(context: string): string {
  const files = createImageFiles(join(context, 'root'));
  files.placeProgram('caddy');
  writeUsers(files.at, 'root:x:0:0::/root:/bin/sh\n');
  writeFileSync(join(context, 'Dockerfile'), CADDY_DOCKERFILE);
  return context;
}

function writeUsers(at: (path: string) => string, users: string): void {
  for (const name of ['etc', 'tmp']) mkdirSync(at(name), { recursive: true });
  chmodSync(at('tmp'), 0o1777);
  writeFileSync(at('etc/passwd'), users);
}

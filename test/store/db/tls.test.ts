/** TLS with certificates of one's own, on a real PostgreSQL that asks for a client certificate. */
import assert from 'node:assert/strict';
import {
  chmodSync,
  chownSync,
  copyFileSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createDatabase } from '../../../src/platform/db/pool.ts';
import { Unavailable } from '../../../src/platform/runtime/errors.ts';
import { createLog } from '../../../src/platform/runtime/log.ts';
import { createMetrics } from '../../../src/platform/runtime/metrics.ts';
import {
  addressOf,
  ask,
  changeSettings,
  openConnections,
  PURPOSES,
} from '../../support/connections.ts';
import { runCommand } from '../../support/commands.ts';
import { startServer } from '../../support/database-servers.ts';
import { makeDirectory } from '../../support/directories.ts';
import { variables } from '../../support/gatehouse.ts';

/**
 * Made with openssl: a CA, and a key and certificate for a server named "localhost" and for the
 * role "gatehouse".
 */
const FILES = join(import.meta.dirname, '../../unit/vectors/tls');

const { data, url, query } = await startServer({ after });
const { uid, gid } = statSync(data);
for (const name of ['server.key', 'server.crt', 'ca.crt']) {
  copyFileSync(join(FILES, name), join(data, name));
  chmodSync(join(data, name), 0o600); // PostgreSQL accepts no other mode for a key
  chownSync(join(data, name), uid, gid);
}
const rules = readFileSync(join(data, 'pg_hba.conf'), 'utf8');
// The password is checked as well.
writeFileSync(
  join(data, 'pg_hba.conf'),
  `hostssl all gatehouse 127.0.0.1/32 scram-sha-256 clientcert=verify-full\n${rules}`,
);
await changeSettings(
  url(),
  `alter system set ssl_ca_file = 'ca.crt'`,
  `alter system set ssl = on`,
  `create role other superuser login password 'other-word'`,
);
const { port, password } = new URL(url());

const own = `&sslcert=${FILES}/client.crt&sslkey=${FILES}/client.key`;
const SHOW = 'select ssl, client_dn as client from pg_stat_ssl where pid = pg_backend_pid()';
const urlFor = (host: string, parameters: string, user = `gatehouse:${password}`) =>
  `postgres://${user}@${host}:${port}/postgres?${parameters}`;

const CA = `&sslrootcert=${FILES}/ca.crt`;
for (const [host, parameters] of [
  ['localhost', `sslmode=verify-full${CA}`],
  ['127.0.0.1', `sslmode=verify-ca${CA}`],
  ['127.0.0.1', `sslmode=require${CA}`],
  ['127.0.0.1', 'sslmode=require'],
] as const) {
  test(`${parameters.replace(FILES, '')} connects to ${host}, with the client's certificate`, async (t) => {
    const database = openConnections(t, urlFor(host, `${parameters}${own}`), 'tls');
    for (const purpose of PURPOSES) {
      const found = await ask(database, purpose, SHOW);
      assert.deepEqual(found, { ssl: true, client: '/CN=gatehouse' }, purpose);
    }
  });
}

test('certificates and the password are read again for a new connection', async (t) => {
  const files = makeDirectory(t, 'again');
  const replace = (name: string, from: string) =>
    copyFileSync(join(FILES, from), join(files, name));
  for (const name of ['ca.crt', 'client.crt', 'client.key']) replace(name, name);
  const parameters = `sslmode=verify-full&sslrootcert=${files}/ca.crt&sslcert=${files}/client.crt&sslkey=${files}/client.key`;
  const place = join(files, 'url');
  const writeUrl = (user: string) =>
    writeFileSync(place, `${urlFor('localhost', parameters, user)}\n`);
  writeUrl(`gatehouse:${password}`);
  const lines: string[] = [];
  const database = createDatabase(
    addressOf('', { DATABASE_URL_FILE: place }),
    'again',
    createLog('error', (line) => lines.push(line)),
    createMetrics(),
  );
  t.after(() => database.close());
  const WHO = 'select current_user as name';
  /** Who a new connection belongs to. A first statement may notice the end of the former one. */
  const reconnect = async () => {
    await query(`select pg_terminate_backend(pid, 60_000) from pg_stat_activity
      where application_name = 'gatehouse-again'`);
    await ask(database, 'read', WHO).catch(() => {});
    return (await ask(database, 'read', WHO)).name;
  };
  assert.equal(await reconnect(), 'gatehouse');

  replace('ca.crt', 'other-ca.crt');
  await assert.rejects(reconnect(), Unavailable);
  replace('ca.crt', 'ca.crt');
  assert.equal(await reconnect(), 'gatehouse');

  writeUrl('other:other-word');
  assert.equal(await reconnect(), 'other');

  assert.deepEqual(lines, []);
  for (const broken of [place, join(files, 'client.key')]) {
    const before = readFileSync(broken);
    rmSync(broken);
    assert.equal(await reconnect(), 'other', 'the earlier one is used');
    const { message, error } = JSON.parse(lines.splice(0).join('').split('\n')[0] ?? '');
    assert.equal(message, 'the database URL cannot be read again: the earlier one is used');
    assert.match(error, /ENOENT/);
    assert.doesNotMatch(error, /other-word/);
    writeFileSync(broken, before);
  }
});

const OTHER_CA = `&sslrootcert=${FILES}/other-ca.crt`;
const UNTRUSTED = /UNABLE_TO_VERIFY|SELF_SIGNED|UNABLE_TO_GET_ISSUER/;

for (const [parameters, host, message] of [
  [`sslmode=verify-full${CA}${own}`, '127.0.0.1', /ERR_TLS_CERT_ALTNAME_INVALID/],
  [`sslmode=verify-full${OTHER_CA}${own}`, 'localhost', UNTRUSTED],
  [`sslmode=verify-ca${OTHER_CA}${own}`, 'localhost', UNTRUSTED],
  [`sslmode=require${OTHER_CA}${own}`, 'localhost', UNTRUSTED],
  [`sslmode=verify-full&sslrootcert=system${own}`, 'localhost', UNTRUSTED],
  [`sslmode=verify-full${CA}`, 'localhost', /28000|CONNECTION_CLOSED|ERR_SSL/],
] as const) {
  test(`${parameters.replaceAll(FILES, '')} is rejected by or for ${host}`, async (t) => {
    const found = ask(openConnections(t, urlFor(host, parameters), 'tls'), 'read', SHOW);
    await assert.rejects(
      found,
      (error) => error instanceof Unavailable && message.test(error.message),
    );
  });
}

test('without sslcert no certificate is shown', async (t) => {
  const without = urlFor('localhost', `sslmode=verify-full${CA}`, 'other:other-word');
  const found = await ask(openConnections(t, without, 'tls'), 'read', SHOW);
  assert.deepEqual(found, { ssl: true, client: null });
});

test('check says that the connection is encrypted', async () => {
  const url = urlFor('localhost', `sslmode=verify-full${CA}`, 'other:other-word');
  const { stdout } = await runCommand(['check', 'secrets'], variables(url));
  assert.match(stdout, /^ok +secrets database +PostgreSQL .*, role other, encrypted$/m);
});

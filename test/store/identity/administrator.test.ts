/**
 * The first run: exactly one super administrator and one webhook token, announced exactly once,
 * whichever replica starts first.
 */
import assert from 'node:assert/strict';
import { lstatSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test, type TestContext } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { ConfigurationError } from '../../../src/platform/process/settings.ts';
import { StartupError } from '../../../src/platform/runtime/errors.ts';
import { createEmptyDatabase } from '../../support/database.ts';
import {
  ADMIN_PASSWORD,
  ask,
  type Gatehouse,
  startGatehouse,
  WEBHOOK_TOKEN,
} from '../../support/gatehouse.ts';
import { ORIGIN, PORTAL, visitorOf } from '../../support/portal.ts';

const GENERATED = { ADMIN_PASSWORD: undefined, WEBHOOK_TOKEN: undefined };
const BOTH = ['identity', 'webhook'] as const;
const SECRET = /^[A-Za-z0-9_-]{43}$/;
const { url: databaseUrl, sql } = await createEmptyDatabase();
const replicas = await Promise.all(
  Array.from({ length: 8 }, () => startGatehouse({ after }, BOTH, databaseUrl, GENERATED)),
);
const told = replicas.map((replica) => replica.stderr()).join('');
const saidOf = (pattern: string) => new RegExp(`^${pattern}$`, 'm').exec(told)?.[1] ?? '';
const password = saidOf('identity: created the first administrator "admin" with password (\\S+)');
const token = saidOf('webhook: created the first token: (\\S+)');

const sendEvent = ({ url }: Gatehouse, bearer: string) =>
  ask('POST', `${url.webhook}/webhook`, { bearer, body: { event: 'e', data: { page_id: '1' } } });
const logInByPassword = ({ url }: Gatehouse, password: string) =>
  ask('POST', `${url.identity}/api/auth/login`, { body: { username: 'admin', password } });

test('of eight replicas starting together, one creates and announces the administrator and the token', async () => {
  const users = await sql`
    select username, email, super_admin, enabled, verified, deleted_at from identity.users`;
  const admin = { username: 'admin', email: 'admin@localhost', super_admin: true };
  assert.deepEqual([...users], [{ ...admin, enabled: true, verified: true, deleted_at: null }]);
  const tokens = await sql`select t::text as text from webhook.tokens t`;
  assert.equal(tokens.length, 1);
  for (const form of [token, Buffer.from(token).toString('hex')])
    assert.ok(!tokens[0]?.text.includes(form));
  for (const what of ['first administrator', 'first token'])
    assert.equal(told.split(what).length, 2);
  assert.match(told, /^identity: change this password within 24 hours, or it expires;/m);
  assert.match(told, /^webhook: replace it before production use: gatehouse token rotate /m);
  for (const secret of [password, token]) {
    assert.match(secret, SECRET);
    assert.equal(told.split(secret).length, 2);
    for (const replica of replicas) assert.equal(replica.stdout().includes(secret), false);
  }
  for (const replica of replicas) {
    const { status, json } = await logInByPassword(replica, password);
    assert.equal(status, 200);
    assert.ok(json.data.password_expires_at);
    assert.equal((await sendEvent(replica, token)).status, 200);
  }
});

test('a second start makes and prints nothing, whoever is there', async (t) => {
  await sql`update identity.users set super_admin = false`;
  const settings = { ADMIN_PASSWORD: 'another passphrase for it', WEBHOOK_TOKEN: undefined };
  const again = await startGatehouse(t, BOTH, databaseUrl, settings);
  assert.equal(again.stderr(), '');
  assert.equal((await logInByPassword(again, password)).status, 200);
  assert.equal((await logInByPassword(again, settings.ADMIN_PASSWORD)).status, 401);
  assert.equal((await sendEvent(again, token)).status, 200);
  assert.equal((await sql`select from identity.users`).length, 1);
});

test('a given ADMIN_PASSWORD works, does not expire, is not printed, and has the stated cost', async (t) => {
  const own = await createEmptyDatabase(t);
  const started = await startGatehouse(t, BOTH, own.url, {
    ADMIN_USERNAME: 'Root-User',
    ADMIN_EMAIL: 'root@example.org',
    PASSWORD_SCRYPT: undefined,
  });
  const said = started.stderr().trimEnd().split('\n').sort();
  assert.deepEqual(said, [
    'identity: created the first administrator "Root-User" with the password of ADMIN_PASSWORD',
    'webhook: created the first token: the value of WEBHOOK_TOKEN',
  ]);
  for (const secret of [ADMIN_PASSWORD, WEBHOOK_TOKEN])
    assert.equal(started.stdout().includes(secret), false);
  const { json } = await ask('POST', `${started.url.identity}/api/auth/login`, {
    body: { username: 'root-user', password: ADMIN_PASSWORD },
  });
  assert.deepEqual(Object.keys(json.data), ['session']);
  const [row] = await own.sql`select password_hash from identity.users`;
  const form = /^\$scrypt\$ln=15,r=8,p=3\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/;
  assert.match(row?.password_hash, form);
});

test('an invalid administrator is a configuration error with every problem before the start', async (t) => {
  const { url } = await createEmptyDatabase(t);
  const given = {
    ADMIN_PASSWORD: 'nowhere99',
    ADMIN_USERNAME: 'ro\u0007ot',
    ADMIN_EMAIL: 'nowhere',
  };
  await assert.rejects(startGatehouse({ after: () => {} }, BOTH, url, given), (error) => {
    assert.ok(error instanceof ConfigurationError);
    const names = error.problems.map((line) => line.split(' ')[0]);
    assert.deepEqual(names, ['ADMIN_USERNAME', 'ADMIN_EMAIL', 'ADMIN_PASSWORD']);
    return !error.problems.join().includes(given.ADMIN_PASSWORD);
  });
});

function makeDirectory(t: TestContext) {
  const directory = makeTemporary(tmpdir(), 'gatehouse-first');
  t.after(() => removeTemporary(directory));
  return { directory, file: (name: string) => join(directory, name) };
}
const read = (path: string) => readFileSync(path, 'utf8').trimEnd();
/** Readable and writable by its owner alone, and no link. */
const assertPrivate = (path: string) =>
  assert.equal(lstatSync(path).mode & 0o177777, 0o100600, path);

test('with FIRST_CREDENTIALS_DIR the password and the token are written to files and not printed', async (t) => {
  const own = await createEmptyDatabase(t);
  const { directory, file } = makeDirectory(t);
  // Files that others can read, and links, must not be written through.
  writeFileSync(file('elsewhere'), 'kept', { mode: 0o644 });
  symlinkSync(file('elsewhere'), file('admin-password'));
  writeFileSync(file('webhook-token'), 'old', { mode: 0o644 });
  const settings = { ...GENERATED, FIRST_CREDENTIALS_DIR: directory };
  const started = await Promise.all([1, 2].map(() => startGatehouse(t, BOTH, own.url, settings)));
  const said = started.map((one) => one.stderr()).join('');
  for (const what of [
    `identity: created the first administrator "admin" with password in ${directory}/admin-password`,
    `webhook: created the first token: in ${directory}/webhook-token`,
  ])
    assert.ok(said.includes(`${what}\n`), said);
  for (const name of ['admin-password', 'webhook-token']) {
    assertPrivate(file(name));
    assert.match(read(file(name)), SECRET);
    for (const one of started)
      assert.equal((one.stdout() + one.stderr()).includes(read(file(name))), false);
  }
  assert.equal(read(file('elsewhere')), 'kept');
  for (const one of started) {
    assert.equal((await logInByPassword(one, read(file('admin-password')))).status, 200);
    assert.equal((await sendEvent(one, read(file('webhook-token')))).status, 200);
  }
});

test('with the sign-in pages the first administrator may choose a password by a link', async (t) => {
  const own = await createEmptyDatabase(t);
  const { directory, file } = makeDirectory(t);
  const settings = { ...GENERATED, ...PORTAL, FIRST_CREDENTIALS_DIR: directory };
  const started = await Promise.all(
    [1, 2].map(() => startGatehouse(t, ['identity'], own.url, settings)),
  );
  assertPrivate(file('admin-link'));
  const link = read(file('admin-link'));
  const [, token = ''] = new RegExp(`^${ORIGIN}/link#([\\w-]{43})$`).exec(link) ?? [];
  assert.notEqual(token, '', link);
  const said = started.map((one) => one.stdout() + one.stderr()).join('');
  assert.ok(said.includes(`or with the link in ${file('admin-link')}`) && !said.includes(token));
  const [, one = assert.fail()] = started;
  const page = await visitorOf(one.url.identity)('/link', { fields: { token } });
  assert.equal(page.status, 200, page.text);
  const generated = await logInByPassword(one, read(file('admin-password')));
  assert.equal(generated.status, 200, 'the page changes nothing');
});

test('if the file cannot be written, no administrator is created and the start ends', async (t) => {
  const own = await createEmptyDatabase(t);
  const settings = { ...GENERATED, FIRST_CREDENTIALS_DIR: '/nowhere/at-all' };
  const start = startGatehouse({ after: () => {} }, ['identity'], own.url, settings);
  const said = /^cannot write \/nowhere\/at-all\/admin-password \(ENOENT\)\. Make/;
  await assert.rejects(start, (error) => error instanceof StartupError && said.test(error.message));
  assert.equal((await own.sql`select from identity.users`).length, 0);
});

/**
 * The first run: exactly one super administrator, announced exactly once, whichever replica starts
 * first.
 */
import assert from 'node:assert/strict';
import { lstatSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { StartupError } from '../../../src/platform/runtime/errors.ts';
import { createEmptyDatabase } from '../../support/database.ts';
import {
  ADMIN_PASSWORD,
  ask,
  logIn,
  startGatehouse,
  variables,
  WEBHOOK_TOKEN,
  assertStatus,
} from '../../support/gatehouse.ts';
import { PENDING } from '../../support/factors.ts';
import { cookieFrom, ORIGIN, PORTAL, visitorOf } from '../../support/portal.ts';
import { buildProgram, runProgram } from '../../support/process.ts';
import { addUser, openIdentity } from '../../support/users.ts';

const { url: databaseUrl, sql } = await createEmptyDatabase();
const program = buildProgram();
const GENERATED = { ADMIN_PASSWORD: undefined, WEBHOOK_TOKEN: undefined };
const replicas = await Promise.all(
  Array.from({ length: 8 }, () =>
    startGatehouse({ after }, ['identity', 'webhook'], databaseUrl, GENERATED),
  ),
);
const told = replicas.map((replica) => replica.stderr()).join('');
const password =
  /^identity: created the first administrator "admin" with password (\S+)$/m.exec(told)?.[1] ?? '';
const token = /^webhook: created the first token: (\S+)$/m.exec(told)?.[1] ?? '';

test('of eight replicas starting together, one creates the administrator and the token', async () => {
  const users = await sql`select username, email, super_admin, enabled, verified, deleted_at
      from identity.users`;
  assert.deepEqual(
    [...users],
    [
      {
        username: 'admin',
        email: 'admin@localhost',
        super_admin: true,
        enabled: true,
        verified: true,
        deleted_at: null,
      },
    ],
  );
  const [row] = await sql`select count(*)::int as tokens from webhook.tokens`;
  assert.equal(row?.tokens, 1);
});

test('each is announced once, on standard error, and shows up nowhere else', () => {
  assert.equal(told.split('\n').filter((line) => line.includes('first administrator')).length, 1);
  assert.equal(told.split('\n').filter((line) => line.includes('first token')).length, 1);
  assert.match(password, /^[A-Za-z0-9_-]{43}$/);
  assert.match(token, /^[A-Za-z0-9_-]{43}$/);
  for (const secret of [password, token]) {
    assert.equal(told.split(secret).length, 2);
    for (const replica of replicas) assert.equal(replica.stdout().includes(secret), false);
  }
});

test('the announced password logs in, at every replica', async () => {
  for (const { url } of replicas) await logIn(url.identity, 'admin', password);
});

test('stored rows contain no password, session token or webhook token', async () => {
  const session = await logIn(replicas[0]?.url.identity ?? '', 'admin', password);
  const tables = [
    sql`identity.users`,
    sql`identity.sessions`,
    sql`identity.locks`,
    sql`webhook.tokens`,
  ];
  const rows = await Promise.all(
    tables.map((table) => sql`select row::text as content from ${table} as row`),
  );
  const content = rows
    .flat()
    .map((row) => String(row.content))
    .join('\n');
  assert.match(content, /\$scrypt\$/);
  const uuid = session.slice('session:'.length);
  for (const secret of [password, token, uuid]) {
    for (const form of [
      secret,
      Buffer.from(secret).toString('hex'),
      Buffer.from(secret).toString('base64'),
    ])
      assert.equal(content.includes(form), false);
  }
  assert.equal(content.includes(uuid.replaceAll('-', '')), false);
});

test('a second start makes and prints nothing, also with another ADMIN_PASSWORD', async (t) => {
  const again = await startGatehouse(t, ['identity', 'webhook'], databaseUrl, {
    ADMIN_PASSWORD: 'another passphrase for it',
  });
  assert.equal(again.stderr(), '');
  await logIn(again.url.identity, 'admin', password);
  await assert.rejects(logIn(again.url.identity, 'admin', 'another passphrase for it'), /401/);
});

test('a given ADMIN_PASSWORD works and is not printed', async (t) => {
  const { url } = await createEmptyDatabase(t);
  const environment = { ADMIN_USERNAME: 'Root-User', ADMIN_EMAIL: 'root@example.org' };
  const started = await startGatehouse(t, ['identity', 'webhook'], url, environment);
  assert.match(
    started.stderr(),
    /^identity: created the first administrator "Root-User" with the password of ADMIN_PASSWORD$/m,
  );
  for (const secret of [ADMIN_PASSWORD, WEBHOOK_TOKEN])
    assert.equal((started.stdout() + started.stderr()).includes(secret), false);
  await logIn(started.url.identity, 'root-user', ADMIN_PASSWORD);
});

test('by default the hash has the stated cost', async (t) => {
  const own = await createEmptyDatabase(t);
  await startGatehouse(t, ['identity'], own.url, { PASSWORD_SCRYPT: undefined });
  const [row] = await own.sql`select password_hash from identity.users`;
  assert.match(
    row?.password_hash,
    /^\$scrypt\$ln=15,r=8,p=3\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/,
  );
});

test('an invalid administrator is a configuration error with every problem before the start', async (t) => {
  const own = await createEmptyDatabase(t);
  const given = {
    ADMIN_PASSWORD: 'nowhere99',
    ADMIN_USERNAME: 'ro\u0007ot',
    ADMIN_EMAIL: 'nowhere',
  };
  const { code, stdout, stderr } = await runProgram(t, program, ['serve'], {
    ...variables(own.url),
    ...given,
  });
  assert.deepEqual([code, stdout], [78, '']);
  assert.deepEqual(
    stderr
      .trimEnd()
      .split('\n')
      .map((line) => line.split(' ')[1]),
    ['ADMIN_USERNAME', 'ADMIN_EMAIL', 'ADMIN_PASSWORD'],
  );
  assert.ok(!stderr.includes(given.ADMIN_PASSWORD));
});

test('with FIRST_CREDENTIALS_DIR the password and the token are written to files and not printed', async (t) => {
  const own = await createEmptyDatabase(t);
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-first-'));
  t.after(() => rmSync(directory, { recursive: true }));
  // Files that others can read, and links, must not be written through.
  writeFileSync(join(directory, 'elsewhere'), 'kept', { mode: 0o644 });
  symlinkSync(join(directory, 'elsewhere'), join(directory, 'admin-password'));
  writeFileSync(join(directory, 'webhook-token'), 'old', { mode: 0o644 });
  const environment = { ...GENERATED, FIRST_CREDENTIALS_DIR: directory };
  const started = await Promise.all(
    [1, 2, 3].map(() => startGatehouse(t, ['identity', 'webhook'], own.url, environment)),
  );
  const printed = started.map((one) => one.stderr()).join('');
  assert.match(
    printed,
    new RegExp(
      `^identity: created the first administrator "admin" with password in ${directory}/admin-password$`,
      'm',
    ),
  );
  assert.match(
    printed,
    new RegExp(`^webhook: created the first token: in ${directory}/webhook-token$`, 'm'),
  );
  const read = (name: string) => readFileSync(join(directory, name), 'utf8').trimEnd();
  const kept = read('admin-password');
  const given = read('webhook-token');
  for (const name of ['admin-password', 'webhook-token'])
    assert.equal(lstatSync(join(directory, name)).mode & 0o177777, 0o100600, name);
  assert.equal(readFileSync(join(directory, 'elsewhere'), 'utf8'), 'kept');
  for (const secret of [kept, given]) {
    assert.match(secret, /^[A-Za-z0-9_-]{43}$/);
    for (const one of started) assert.equal((one.stdout() + one.stderr()).includes(secret), false);
  }
  for (const { url } of started) await logIn(url.identity, 'admin', kept);
  const event = { event: 'page.updated', data: { page_id: '1' } };
  assertStatus(
    await ask('POST', `${started[0]?.url.webhook}/webhook`, { bearer: given ?? '', body: event }),
    200,
  );
});

test('with the sign-in pages the first administrator may choose a password by a link, once', async (t) => {
  const own = await createEmptyDatabase(t);
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-first-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const environment = { ...GENERATED, ...PORTAL, FIRST_CREDENTIALS_DIR: directory };
  const started = await Promise.all(
    [1, 2, 3].map(() => startGatehouse(t, ['identity'], own.url, environment)),
  );
  const file = join(directory, 'admin-link');
  assert.equal(lstatSync(file).mode & 0o177777, 0o100600);
  const link = readFileSync(file, 'utf8').trimEnd();
  const [, token = ''] = new RegExp(`^${ORIGIN}/link#([\\w-]{43})$`).exec(link) ?? [];
  assert.notEqual(token, '', link);
  const said = started.map((one) => one.stdout() + one.stderr()).join('');
  assert.ok(said.includes(`or with the link in ${file}`), said);
  assert.ok(!said.includes(token));
  const { url } = started[1] ?? assert.fail();
  const visit = visitorOf(url.identity);
  const generated = readFileSync(join(directory, 'admin-password'), 'utf8').trimEnd();
  const page = await visit('/link', { fields: { token } });
  assert.equal(page.status, 200, page.text);
  await logIn(url.identity, 'admin', generated); // the page alone changes nothing
  const fields = { password: 'chosen by the person', return_to: '' };
  const done = await visit('/login/password', { fields, cookie: cookieFrom(page, PENDING) });
  assert.equal(done.status, 200, done.text);
  await logIn(url.identity, 'admin', 'chosen by the person');
  const refused = await ask('POST', `${url.identity}/api/auth/login`, {
    body: { username: 'admin', password: generated },
  });
  assert.equal(refused.status, 401, 'the generated password is replaced');
  assert.equal((await visit('/link', { fields: { token } })).status, 401, 'it counts once');
});

test('if the file cannot be written, no administrator is created and the start ends', async (t) => {
  const own = await createEmptyDatabase(t);
  const start = startGatehouse({ after: () => {} }, ['identity'], own.url, {
    ...GENERATED,
    FIRST_CREDENTIALS_DIR: '/nowhere/at-all',
  });
  await assert.rejects(
    start,
    (error) =>
      error instanceof StartupError &&
      /^cannot write \/nowhere\/at-all\/admin-password \(ENOENT\)\. Make/.test(error.message),
  );
  const [row] = await own.sql`select count(*)::int as users from identity.users`;
  assert.equal(row?.users, 0);
});

test('a generated first password says that it expires; a given one does not', async (t) => {
  assert.match(
    told,
    /^identity: change this password within 24 hours, or it expires; to set another, run: gatehouse user password NAME$/m,
  );
  assert.match(
    told,
    /^webhook: replace it before production use: gatehouse token rotate [0-9a-f-]{36}$/m,
  );
  const login = async (url: string, password: string) =>
    (await ask('POST', `${url}/api/auth/login`, { body: { username: 'admin', password } })).json
      .data;
  assert.ok((await login(replicas[0]?.url.identity ?? '', password)).password_expires_at);
  const own = await createEmptyDatabase(t);
  const given = await startGatehouse(t, ['identity'], own.url);
  assert.deepEqual(Object.keys(await login(given.url.identity, ADMIN_PASSWORD)), ['session']);
  assert.equal(given.stderr().trimEnd().split('\n').length, 1);
});

test('no administrator is created if there is any user', async (t) => {
  const own = await createEmptyDatabase(t);
  const first = await startGatehouse(t, ['identity'], own.url);
  await own.sql`delete from identity.users`;
  await addUser(openIdentity(t, own.url), 'made-by-hand');
  await first.stop();
  const second = await startGatehouse(t, ['identity'], own.url);
  assert.equal(second.stderr(), '');
  const users = await own.sql`select username from identity.users`;
  assert.deepEqual([...users], [{ username: 'made-by-hand' }]);
});

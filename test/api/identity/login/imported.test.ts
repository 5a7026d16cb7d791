/** Logins of users whose password hash another program made. */
import assert from 'node:assert/strict';
import { createHook } from 'node:async_hooks';
import { pbkdf2Sync } from 'node:crypto';
import { after, test } from 'node:test';
import { readForeignHash } from '../../../../src/identity/imported-hashes.ts';
import { findImportedHash } from '../../../../src/identity/store/hashes.ts';
import { startIdentity } from '../../../support/api-users.ts';
import { openIdentity, PASSWORD } from '../../../support/users.ts';

const WRONG = 'another passphrase';
const { databaseUrl, sql, login, add } = await startIdentity({ after });
const database = openIdentity({ after }, databaseUrl);

const foreign = (iterations: number) => {
  const hash = pbkdf2Sync(PASSWORD, 'seasalt8', iterations, 32, 'sha256').toString('base64');
  const stored = readForeignHash(`pbkdf2_sha256$${iterations}$seasalt8$${hash}`);
  assert.ok(typeof stored === 'string');
  return stored;
};
async function addImported(iterations = 1_000) {
  const user = await add();
  await sql`update identity.users set password_hash = ${foreign(iterations)} where id = ${user.id}`;
  return user;
}
const hashOf = async (id: string) =>
  String((await sql`select password_hash from identity.users where id = ${id}`)[0]?.password_hash);

test('the right password logs in, also at once, and ours replaces the hash; a wrong one changes nothing', async () => {
  const user = await addImported();
  assert.equal((await login(user.username, WRONG)).status, 401);
  assert.equal(await hashOf(user.id), foreign(1_000));
  const answers = await Promise.all([1, 2, 3].map(() => login(user.username, PASSWORD)));
  for (const { status } of answers) assert.equal(status, 200);
  assert.match(await hashOf(user.id), /^\$scrypt\$/);
  assert.equal((await login(user.username, PASSWORD)).status, 200);
  assert.equal((await login(user.username, WRONG)).status, 401);
});

test('a name without a user is checked against one imported hash, always the same one', async () => {
  await sql`update identity.users set password_hash = null where password_hash like 'imported$%'`;
  assert.equal(await findImportedHash(database, 'nobody'), null);
  const kinds = [1_000, 2_000, 3_000];
  for (const [index, iterations] of kinds.entries()) {
    const { id } = await addImported(iterations);
    // Far from each other, so that many names lie before each.
    await sql`update identity.users set id = ${`${index * 4}${id.slice(1)}`} where id = ${id}`;
  }
  const found = await Promise.all(
    Array.from({ length: 60 }, (_, index) => findImportedHash(database, `nobody-${index % 30}`)),
  );
  assert.deepEqual(found.slice(0, 30), found.slice(30));
  // Each kind is met.
  assert.deepEqual([...new Set(found)].sort(), kinds.map(foreign).sort());
  assert.equal((await login('nobody', PASSWORD)).status, 401);
});

test('each failure costs one hash of ours and one imported, whoever has which', async (t) => {
  await sql`update identity.users set password_hash = null where password_hash like 'imported$%'`;
  const imported = await addImported();
  const disabled = await addImported();
  await sql`update identity.users set enabled = false where id = ${disabled.id}`;
  const own = await add();
  const without = await add();
  await sql`update identity.users set password_hash = null where id = ${without.id}`;
  let hashes: string[] = [];
  const watching = createHook({
    init(_id, type) {
      // The driver hashes its password for each new connection.
      const isDriver = new Error().stack?.includes('node_modules/postgres') ?? false;
      if (/^(SCRYPT|PBKDF2)REQUEST$/.test(type) && !isDriver) hashes.push(type);
    },
  }).enable();
  t.after(() => watching.disable());
  const failures: ReadonlyArray<readonly [what: string, username: string, password: string]> = [
    ['an unknown name', 'nobody', PASSWORD],
    ['our hash', own.username, WRONG],
    ['an imported hash', imported.username, WRONG],
    ['a disabled user with an imported hash', disabled.username, PASSWORD],
    ['no password', without.username, PASSWORD],
  ];
  for (const [what, username, password] of failures) {
    hashes = [];
    assert.equal((await login(username, password)).status, 401, what);
    assert.deepEqual(hashes.sort(), ['PBKDF2REQUEST', 'SCRYPTREQUEST'], what);
  }
  assert.equal(await hashOf(disabled.id), foreign(1_000));
});

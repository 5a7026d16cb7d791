/** How a user comes into being, on a real PostgreSQL: what is stored, what is refused, and that then nothing is. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { DEFAULT_COST, verifyPassword } from '../../src/crypto/password.ts';
import { migrate } from '../../src/db/migrate.ts';
import { MIGRATIONS, SCHEMA } from '../../src/identity/migrations.ts';
import { findAccount, listUsers } from '../../src/identity/store.ts';
import { createUser } from '../../src/identity/users.ts';
import { createDatabase } from '../support/database.ts';
import { addUser, CHEAP, openIdentity, PASSWORD } from '../support/users.ts';

const { url, sql } = await createDatabase();
const database = openIdentity({ after }, url);
await migrate(database, SCHEMA, MIGRATIONS);

const good = { username: 'new-user', email: 'new-user@example.org', password: PASSWORD };
const create = (input: unknown) => createUser(database, input, CHEAP);
const count = async () => Number((await sql`select count(*) from identity.users`)[0]?.count);
const faultsOf = async (input: unknown) => {
  const creation = await create(input);
  return creation.outcome === 'created' ? 'created' : [creation.outcome, ...creation.faults.map(({ path }) => path)];
};

test('a user is stored as told; what is left out is empty or false', async () => {
  const full = { username: 'Full-User', email: 'Full@example.org', first_name: 'First', last_name: 'Last', verified: true, super_admin: true };
  await create({ ...full, password: PASSWORD });
  await create({ username: 'bare-user', email: 'bare@example.org', password: PASSWORD });
  const rows = await sql`
    select username, email, first_name, last_name, verified, super_admin, enabled, deleted_at from identity.users
    where username in ('Full-User', 'bare-user') order by created_at`;
  const always = { enabled: true, deleted_at: null };
  assert.deepEqual([...rows], [
    { ...full, ...always },
    { username: 'bare-user', email: 'bare@example.org', first_name: '', last_name: '', verified: false, super_admin: false, ...always },
  ]);
});

test('by default a password is stored as a PHC string of scrypt with 32 MiB, and never itself', async () => {
  assert.deepEqual(DEFAULT_COST, { logN: 15, r: 8, p: 3 });
  const input = { ...good, username: 'default-cost', email: 'default-cost@example.org' };
  const creation = await createUser(database, input, { ...CHEAP, cost: DEFAULT_COST });
  assert.equal(creation.outcome, 'created');
  const [row] = await sql`select password_hash, users::text as everything from identity.users where username = 'default-cost'`;
  assert.match(row?.password_hash, /^\$scrypt\$ln=15,r=8,p=3\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/);
  assert.equal(row?.everything.includes(PASSWORD), false);
  assert.equal(await verifyPassword(PASSWORD, row?.password_hash), true);
});

test('where no password is given one of 256 random bits is made, told once and stored as a hash', async () => {
  const creation = await create({ username: 'generated', email: 'generated@example.org' });
  assert.equal(creation.outcome, 'created');
  const password = creation.outcome === 'created' ? creation.generatedPassword : null;
  assert.match(password ?? '', /^[A-Za-z0-9_-]{43}$/);
  const account = await findAccount(database, 'generated');
  assert.equal(await verifyPassword(password ?? '', account?.password_hash ?? ''), true);
  const [row] = await sql`select users::text as everything from identity.users where username = 'generated'`;
  assert.equal(row?.everything.includes(password), false);
});

test('two users with the same password have different hashes', async () => {
  for (const name of ['salt-one', 'salt-two']) await addUser(database, name);
  const rows = await sql`select distinct password_hash from identity.users where username in ('salt-one', 'salt-two')`;
  assert.equal(rows.length, 2);
});

test('whatever is wrong is refused by name, and nothing is stored', async () => {
  const before = await count();
  const refused: ReadonlyArray<readonly [input: unknown, ...paths: string[]]> = [
    [null, ''],
    [[], ''],
    [{}, '/username', '/email'],
    [{ ...good, username: '' }, '/username'],
    [{ ...good, username: ' new-user' }, '/username'],
    [{ ...good, username: 'new-user ' }, '/username'],
    [{ ...good, username: 'new\nuser' }, '/username'],
    [{ ...good, username: 'new\0user' }, '/username'],
    [{ ...good, username: '\ud800' }, '/username'],
    [{ ...good, username: 'n'.repeat(256) }, '/username'],
    [{ ...good, username: 1 }, '/username'],
    [{ ...good, email: 'new-user' }, '/email'],
    [{ ...good, email: '@example.org' }, '/email'],
    [{ ...good, email: 'a@b c' }, '/email'],
    [{ ...good, email: `${'n'.repeat(255)}@example.org` }, '/email'],
    [{ ...good, first_name: 'tab\there' }, '/first_name'],
    [{ ...good, last_name: 'l'.repeat(256) }, '/last_name'],
    [{ ...good, password: '' }, '/password'],
    [{ ...good, password: '1234567' }, '/password'],
    [{ ...good, password: 'PassWord1' }, '/password'],
    [{ ...good, password: 'p'.repeat(1_025) }, '/password'],
    [{ ...good, password: null }, '/password'],
    [{ ...good, verified: 'yes' }, '/verified'],
    [{ ...good, super_admin: 1 }, '/super_admin'],
    // A misspelt member must not silently make another user than was meant.
    [{ ...good, superadmin: true }, '/superadmin'],
    [{ username: '', email: '', verified: 1 }, '/username', '/email', '/verified'],
  ];
  for (const [input, ...paths] of refused) assert.deepEqual(await faultsOf(input), ['refused', ...paths], JSON.stringify(input));
  assert.equal(await count(), before);
});

test('a password may have 8 to 1024 characters of any kind', async () => {
  const passwords = ['x7#kQ2vz', '🔑🗝🚪🪟🏠🏡🏘🏚', 'p'.repeat(1_024), '    spaces    '];
  for (const [index, password] of passwords.entries()) await addUser(database, `long-or-short-${index}`, { password });
});

// To scrypt a password and the same one with NUL characters behind it are one: eight of them would be the empty password.
test('a password with a NUL character is refused', async () => {
  for (const password of [`${PASSWORD}\0`, '\0'.repeat(8), 'in the\0middle']) assert.deepEqual(await faultsOf({ ...good, password }), ['refused', '/password']);
});

test('a name or an address that is taken is told apart from a wrong one, in any case or spelling', async () => {
  await create({ username: 'Café', email: 'Cafe@example.org', password: PASSWORD });
  const before = await count();
  for (const username of ['Café', 'CAFÉ', 'cafe\u0301', 'ｃａｆé']) {
    assert.deepEqual(await faultsOf({ ...good, username, email: 'free@example.org' }), ['taken', '/username']);
  }
  assert.deepEqual(await faultsOf({ ...good, username: 'free', email: 'cAFE@EXAMPLE.org' }), ['taken', '/email']);
  assert.equal(await count(), before);
});

test('of simultaneous users with one name exactly one is made', async () => {
  const outcomes = await Promise.all(
    Array.from({ length: 12 }, async (_, index) => (await create({ ...good, username: index % 2 ? 'RACER' : 'racer', email: `racer-${index}@example.org` })).outcome),
  );
  assert.deepEqual(outcomes.sort(), ['created', ...Array<string>(11).fill('taken')]);
});

test('users are listed oldest first, without the deleted', async () => {
  await sql`delete from identity.users`;
  const ids = [await addUser(database, 'third'), await addUser(database, 'first'), await addUser(database, 'gone'), await addUser(database, 'second')];
  await sql`update identity.users set created_at = now() - interval '2 days' where username = 'first'`;
  await sql`update identity.users set created_at = now() - interval '1 day' where username = 'second'`;
  await sql`update identity.users set deleted_at = now() where id = ${ids[2] ?? ''}`;
  assert.deepEqual((await listUsers(database)).map((user) => user.username), ['first', 'second', 'third']);
});

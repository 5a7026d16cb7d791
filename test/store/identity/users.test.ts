/**
 * How a user comes into being, on a real PostgreSQL: what is stored, what is refused, and that then
 * nothing is.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { verifyPassword } from '../../../src/identity/passwords.ts';
import { DEFAULT_COST } from '../../../src/platform/crypto/scrypt.ts';
import { migrate } from '../../../src/platform/db/schema.ts';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { validate } from '../../../src/platform/http/route/schema.ts';
import { SCHEMA } from '../../../src/identity/migrations.ts';
import type { User } from '../../../src/identity/model.ts';
import { COMMAND_LINE } from '../../../src/identity/store/audit.ts';
import { eachUser, listUsers } from '../../../src/identity/store/lists.ts';
import { createUser, newUserSchema } from '../../../src/identity/users.ts';
import { createDatabase } from '../../support/database.ts';
import { addUser, CHEAP, CHEAP_PASSWORDS, openIdentity, PASSWORD } from '../../support/users.ts';

const { url, sql } = await createDatabase();
const database = openIdentity({ after }, url);
await migrate(database, SCHEMA);

const good = { username: 'new-user', email: 'new-user@example.org', password: PASSWORD };
const count = async () => Number((await sql`select count(*) from identity.users`)[0]?.count);

async function create(input: unknown, passwords = CHEAP_PASSWORDS): Promise<User | Failure> {
  const taken = validate(newUserSchema, input, 'invalid_body');
  return taken instanceof Failure ? taken : createUser(database, COMMAND_LINE, taken, passwords);
}

const outcomeOf = async (input: unknown): Promise<string[]> => {
  const outcome = await create(input);
  return outcome instanceof Failure
    ? [outcome.code, ...(outcome.details.fields ?? []).map(({ path }) => path)]
    : ['created'];
};

test('a user is stored as given; omitted members are empty or false, except enabled', async () => {
  const full = {
    username: 'Full-User',
    email: 'Full@example.org',
    first_name: 'First',
    last_name: 'Last',
    verified: true,
    super_admin: true,
    enabled: false,
  };
  await create({ ...full, password: PASSWORD });
  await create({ username: 'bare-user', email: 'bare@example.org', password: PASSWORD });
  const rows = await sql`
    select username, email, first_name, last_name, verified, super_admin, enabled, deleted_at
      from identity.users
    where username in ('Full-User', 'bare-user') order by created_at`;
  assert.deepEqual(
    [...rows],
    [
      { ...full, deleted_at: null },
      {
        username: 'bare-user',
        email: 'bare@example.org',
        first_name: '',
        last_name: '',
        verified: false,
        super_admin: false,
        enabled: true,
        deleted_at: null,
      },
    ],
  );
});

test('by default a password is stored as a scrypt PHC string of 32 MiB', async () => {
  assert.deepEqual(DEFAULT_COST, { logN: 15, r: 8, p: 3 });
  const input = { ...good, username: 'default-cost', email: 'default-cost@example.org' };
  const user = await create(input, { passwords: { ...CHEAP, cost: DEFAULT_COST } });
  assert.ok(!(user instanceof Failure));
  const [row] = await sql`select password_hash, users::text as everything from identity.users
      where username = 'default-cost'`;
  assert.match(
    row?.password_hash,
    /^\$scrypt\$ln=15,r=8,p=3\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/,
  );
  assert.equal(row?.everything.includes(PASSWORD), false);
  assert.equal(await verifyPassword(PASSWORD, row?.password_hash), true);
});

test('without a given password, no hash is stored', async () => {
  assert.deepEqual(
    await outcomeOf({ username: 'passwordless', email: 'passwordless@example.org' }),
    ['created'],
  );
  const rows = await sql`select password_hash from identity.users where username = 'passwordless'`;
  assert.deepEqual([...rows], [{ password_hash: null }]);
});

test('two users with the same password have different hashes', async () => {
  for (const name of ['salt-one', 'salt-two']) await addUser(database, name);
  const rows = await sql`select distinct password_hash from identity.users
      where username in ('salt-one', 'salt-two')`;
  assert.equal(rows.length, 2);
});

test('each invalid field is rejected by name, and nothing is stored', async () => {
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
    [{ ...good, enabled: null }, '/enabled'],
    // A misspelt member must not silently make another user than was meant.
    [{ ...good, superadmin: true }, '/superadmin'],
    [{ ...good, id: '00000000-0000-4000-8000-000000000000' }, '/id'],
    [{ ...good, password_hash: 'x' }, '/password_hash'],
    [{ username: '', email: '', verified: 1 }, '/username', '/email', '/verified'],
  ];
  for (const [input, ...paths] of refused)
    assert.deepEqual(await outcomeOf(input), ['invalid_body', ...paths], JSON.stringify(input));
  assert.equal(await count(), before);
});

test('a password may have 8 to 1024 characters of any kind', async () => {
  const passwords = ['x7#kQ2vz', '🔑🗝🚪🪟🏠🏡🏘🏚', 'pq'.repeat(512), '    spaces    '];
  for (const [index, password] of passwords.entries())
    await addUser(database, `long-or-short-${index}`, { password });
});

// To scrypt a password and the same one with NUL characters behind it are one: eight of them would
// be the empty password.
test('a password with a NUL character is rejected', async () => {
  for (const password of [`${PASSWORD}\0`, '\0'.repeat(8), 'in the\0middle'])
    assert.deepEqual(await outcomeOf({ ...good, password }), ['invalid_body', '/password']);
});

test('a taken name or address is reported as such, in any case or spelling', async () => {
  await create({ username: 'Café', email: 'Cafe@example.org', password: PASSWORD });
  const before = await count();
  for (const username of ['Café', 'CAFÉ', 'cafe\u0301', 'ｃａｆé']) {
    assert.deepEqual(await outcomeOf({ ...good, username, email: 'free@example.org' }), [
      'conflict',
      '/username',
    ]);
  }
  assert.deepEqual(await outcomeOf({ ...good, username: 'free', email: 'cAFE@EXAMPLE.org' }), [
    'conflict',
    '/email',
  ]);
  assert.equal(await count(), before);
});

test('of simultaneous users with one name exactly one is made', async () => {
  const outcomes = await Promise.all(
    Array.from(
      { length: 12 },
      async (_, index) =>
        (
          await outcomeOf({
            ...good,
            username: index % 2 ? 'RACER' : 'racer',
            email: `racer-${index}@example.org`,
          })
        )[0] ?? '',
    ),
  );
  assert.deepEqual(outcomes.sort(), [...Array<string>(11).fill('conflict'), 'created']);
});

async function allUsers(): Promise<User[]> {
  const users: User[] = [];
  for await (const batch of eachUser(database, {})) users.push(...batch);
  return users;
}

test('users are listed oldest first, without the deleted, whole or by the page', async () => {
  await sql`delete from identity.users`;
  const ids = [
    await addUser(database, 'third'),
    await addUser(database, 'first'),
    await addUser(database, 'gone'),
    await addUser(database, 'second'),
  ];
  await sql`update identity.users set created_at = now() - interval '2 days'
    where username = 'first'`;
  await sql`update identity.users set created_at = now() - interval '1 day'
    where username = 'second'`;
  await sql`update identity.users set deleted_at = now() where id = ${ids[2] ?? ''}`;
  assert.deepEqual(
    (await allUsers()).map((user) => user.username),
    ['first', 'second', 'third'],
  );
  const page = async (number: number) => {
    const { rows, total } = await listUsers(database, { page: number, limit: 2 });
    return [total, ...rows.map((user) => user.username)];
  };
  assert.deepEqual(
    [await page(1), await page(2), await page(3)],
    [[3, 'first', 'second'], [3, 'third'], [3]],
  );
});

test('a list of many batches has every user once, even if created at the same moment', async () => {
  await sql`delete from identity.users`;
  // Of the same microsecond, and of the same millisecond but not the same microsecond: a clock in
  // milliseconds would confuse them.
  await sql`
    insert into identity.users (id, username, username_key, email, email_key, first_name,
      last_name, enabled, verified, super_admin, created_at)
    select gen_random_uuid(), n::text, n::text, n::text, n::text, '', '', true, false, false,
      timestamptz '2030-01-01T00:00:00Z' + case when n <= 700 then 0 else n end * interval
        '1 microsecond'
    from generate_series(1, 1500) as n`;
  const inOrder = (await sql`select username from identity.users order by created_at, id`).map(
    (row) => String(row.username),
  );
  assert.deepEqual(
    (await allUsers()).map((user) => user.username),
    inOrder,
  );
});

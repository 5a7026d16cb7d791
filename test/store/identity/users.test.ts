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

async function create(input: unknown, passwords = CHEAP_PASSWORDS): Promise<User | Failure> {
  const taken = validate(newUserSchema, input, 'invalid_body');
  return taken instanceof Failure ? taken : createUser(database, COMMAND_LINE, taken, passwords);
}

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

test('two users with the same password have different hashes', async () => {
  for (const name of ['salt-one', 'salt-two']) await addUser(database, name);
  const rows = await sql`select distinct password_hash from identity.users
      where username in ('salt-one', 'salt-two')`;
  assert.equal(rows.length, 2);
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

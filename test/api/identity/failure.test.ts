/**
 * A database that answers, but not with what was asked for: 500, never 401, never a pretended
 * success. Without a database: `test/api/contract/failures.test.ts`.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startIdentity } from '../../support/api-users.ts';
import { ADMIN_PASSWORD } from '../../support/gatehouse.ts';
import { assertError, isOpen } from '../../support/users.ts';

const { identity, sql, admin, call, login, log } = await startIdentity({ after });
const logIn = (username = 'admin') => login(username, ADMIN_PASSWORD);
const read = (path: string) => call(admin.token, 'GET', path);

test('while a table is missing, a credential is neither accepted nor rejected', async () => {
  await sql`alter table identity.sessions rename to hidden_sessions`;
  const answer = await read('/api/test/');
  assertError(answer, 500, 'service_failed');
  assertError(await logIn(), 500, 'service_failed');
  assert.doesNotMatch(answer.text, /42P01|relation|hidden|select/i, 'not explained to the caller');
  const line = log().find(({ request_id }) => request_id === answer.json._meta.request_id);
  assert.match(String(line?.error), /42P01/);
  await sql`alter table identity.hidden_sessions rename to sessions`;
  assert.equal(await isOpen(identity, admin.token), true);
});

test('a login whose account cannot be looked up is 500, whether there is one or not', async () => {
  await sql`alter table identity.users rename to hidden_users`;
  for (const name of ['admin', 'nobody-here'])
    assertError(await logIn(name), 500, 'service_failed');
  await sql`alter table identity.hidden_users rename to users`;
});

test('a list that fails is 500, though the caller is known', async () => {
  // What only the lists read.
  await sql`alter table identity.api_keys rename column name to hidden_name`;
  await sql`alter table identity.audit rename column created_at to hidden_time`;
  for (const path of ['/api/key/', '/api/audit/'])
    assertError(await read(path), 500, 'service_failed');
  assert.equal(await isOpen(identity, admin.token), true);
  await sql`alter table identity.api_keys rename column hidden_name to name`;
  await sql`alter table identity.audit rename column hidden_time to created_at`;
});

test('a stored hash that cannot be verified is 500 and no login', async () => {
  const costly = `$scrypt$ln=40,r=8,p=1$${'A'.repeat(22)}$${'A'.repeat(43)}`;
  const before = await sql`select from identity.sessions`;
  for (const hash of ['', 'plain text', costly]) {
    await sql`update identity.users set password_hash = ${hash}`;
    assert.equal((await logIn()).status, 500, hash);
  }
  assert.equal((await sql`select from identity.sessions`).length, before.length);
});

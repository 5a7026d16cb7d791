/** Generated passwords log in for 24 hours, the reply says so, and they cannot stay (ASVS 6.4.1). */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { COMMAND_LINE } from '../../../../src/identity/store/audit.ts';
import { setPassword } from '../../../../src/identity/users.ts';
import { startIdentity } from '../../../support/api-users.ts';
import {
  assertError,
  assertSuccess,
  CHEAP_PASSWORDS,
  openIdentity,
  PASSWORD,
} from '../../../support/users.ts';

const { databaseUrl, sql, admin, call, login, add } = await startIdentity({ after });
const database = openIdentity({ after }, databaseUrl);
const GENERATED = 'made by a machine';
const OWN = 'a password of my own';
const DAY = 24 * 3_600;

interface User {
  readonly id: string;
  readonly username: string;
}
/** As `gatehouse user password` does it. */
const generate = ({ id }: User) =>
  setPassword(database, COMMAND_LINE, id, GENERATED, { ...CHEAP_PASSWORDS, areGenerated: true });
const passTime = ({ id }: User, seconds: number) =>
  sql`update identity.users set password_set_at = password_set_at - make_interval(secs =>
    ${seconds}) where id = ${id}`;
const change = (token: string) =>
  call(token, 'POST', '/api/auth/password', { current_password: GENERATED, new_password: OWN });
async function assertLasts(user: User, password: string) {
  await passTime(user, 100 * DAY);
  assert.deepEqual(Object.keys((await login(user.username, password)).json.data), ['session']);
}

test('login with a generated password says until when it is valid, a newly generated one again', async () => {
  const user = await add();
  await assertLasts(user, PASSWORD);
  for (let round = 0; round < 2; round += 1) {
    await generate(user);
    const { session, ...rest } = (await login(user.username, GENERATED)).json.data;
    assert.deepEqual(Object.keys(rest), ['password_expires_at']);
    const left = (Date.parse(rest.password_expires_at) - Date.now()) / 1_000;
    assert.ok(left > DAY - 600 && left < DAY + 600, `${left} s`);
    if (round === 1) return;
    assertSuccess(await change(session));
    await assertLasts(user, OWN);
  }
});

test('a password that an administrator sets does not expire', async () => {
  const user = await add();
  await generate(user);
  const path = `/api/user/${user.id}/password`;
  assertSuccess(await call(admin.token, 'POST', path, { password: PASSWORD }));
  await assertLasts(user, PASSWORD);
});

test('after 24 hours a generated password is like a wrong one, for a login and for a change', async () => {
  const user = await add();
  await generate(user);
  await passTime(user, DAY - 60);
  const { session } = (await login(user.username, GENERATED)).json.data;
  await passTime(user, 60);
  const expired = await login(user.username, GENERATED);
  const wrong = await login(user.username, 'not the password');
  assertError(expired, 401, 'invalid_credentials');
  assert.deepEqual(expired.json.error, wrong.json.error);
  assertError(await change(session), 401, 'invalid_credentials');
  const { json } = await call(admin.token, 'GET', `/api/audit/?user=${user.id}&event=login.failed`);
  assert.deepEqual(
    json.data.map(({ detail }: { detail: string }) => detail),
    ['wrong password', 'password expired'],
  );
});

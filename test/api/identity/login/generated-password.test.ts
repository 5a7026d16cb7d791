/**
 * Generated passwords: they log in for 24 hours, the reply says so, and they cannot stay (ASVS
 * 6.4.1).
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Failure } from '../../../../src/platform/http/route/errors.ts';
import { COMMAND_LINE } from '../../../../src/identity/store/audit.ts';
import { setPassword } from '../../../../src/identity/users.ts';
import { ask } from '../../../support/gatehouse.ts';
import { startIdentity } from '../../../support/api-users.ts';
import {
  assertError,
  assertSuccess,
  CHEAP_PASSWORDS,
  openIdentity,
  PASSWORD,
} from '../../../support/users.ts';

const { identity, databaseUrl, sql, admin, call, add, enter } = await startIdentity({ after });
const database = openIdentity({ after }, databaseUrl);
const GENERATED = 'made by a machine';
const DAY = 24 * 3_600_000;

/** As `gatehouse user password` does it. */
async function generate({ id }: { id: string }): Promise<void> {
  const outcome = await setPassword(database, COMMAND_LINE, id, GENERATED, {
    ...CHEAP_PASSWORDS,
    areGenerated: true,
  });
  assert.ok(!(outcome instanceof Failure), JSON.stringify(outcome));
}
const passTime = ({ id }: { id: string }, seconds: number) =>
  sql`update identity.users set password_set_at = password_set_at - make_interval(secs =>
    ${seconds}) where id = ${id}`;
const login = ({ username }: { username: string }, password: string) =>
  ask('POST', `${identity}/api/auth/login`, { body: { username, password } });
const change = (token: string, current: string, next: string) =>
  ask('POST', `${identity}/api/auth/password`, {
    bearer: token,
    body: { current_password: current, new_password: next },
  });

test('login with a generated password says until when it is valid; any other login does not', async () => {
  const user = await add();
  assert.deepEqual(Object.keys((await login(user, PASSWORD)).json.data), ['session']);
  await generate(user);
  const { session, ...rest } = (await login(user, GENERATED)).json.data;
  assert.match(session, /^session:/);
  assert.deepEqual(Object.keys(rest), ['password_expires_at']);
  const left = Date.parse(rest.password_expires_at) - Date.now();
  assert.ok(left > DAY - 600_000 && left < DAY + 600_000, `${left} ms`);
});

test('after 24 hours a generated password is answered like a wrong one, and the trail says why', async () => {
  const user = await add();
  await generate(user);
  await passTime(user, 24 * 3_600 - 60);
  assertSuccess(await login(user, GENERATED));
  await passTime(user, 60);
  const expired = await login(user, GENERATED);
  const wrong = await login(user, 'not the password');
  const bare = ({ json: { _meta, ...body } }: typeof wrong) => body;
  assertError(expired, 401, 'invalid_credentials');
  assert.deepEqual(bare(expired), bare(wrong));
  const { json } = await call(admin.token, 'GET', `/api/audit/?user=${user.id}&event=login.failed`);
  assert.deepEqual(
    json.data.map(({ detail }: { detail: string }) => detail),
    ['wrong password', 'password expired'],
  );
});

test('a changed or set password does not expire; a newly generated one has 24 hours again', async () => {
  const user = await enter();
  await generate(user);
  const { session } = (await login(user, GENERATED)).json.data;
  assertSuccess(await change(session, GENERATED, 'a password of my own'));
  await passTime(user, 100 * 24 * 3_600);
  assert.deepEqual(Object.keys((await login(user, 'a password of my own')).json.data), ['session']);
  await generate(user);
  assert.ok((await login(user, GENERATED)).json.data.password_expires_at);
  assertSuccess(
    await call(admin.token, 'POST', `/api/user/${user.id}/password`, { password: PASSWORD }),
  );
  await passTime(user, 100 * 24 * 3_600);
  assert.deepEqual(Object.keys((await login(user, PASSWORD)).json.data), ['session']);
});

test('an expired password cannot be used to change it either', async () => {
  const user = await add();
  await generate(user);
  const { session } = (await login(user, GENERATED)).json.data;
  await passTime(user, 24 * 3_600);
  const answer = await change(session, GENERATED, 'a password of my own');
  assertError(answer, 401, 'invalid_credentials');
  assert.equal(answer.json.error.message, 'The current password is wrong or has expired.');
});

test('an administrator whose password expires does not count as the last one who can log in', async () => {
  const second = await add({ super_admin: true });
  await generate(second);
  assertError(await call(admin.token, 'DELETE', `/api/user/${admin.id}`), 409, 'conflict');
  const { session } = (await login(second, GENERATED)).json.data;
  assertSuccess(await change(session, GENERATED, 'a password of my own'));
  assertSuccess(await call(admin.token, 'DELETE', `/api/user/${admin.id}`));
});

/** Second factors that change while another request is under way. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { migrate } from '../../../src/platform/db/schema.ts';
import { createTotpKey } from '../../../src/identity/factors/codes.ts';
import { SCHEMA } from '../../../src/identity/migrations.ts';
import { COMMAND_LINE } from '../../../src/identity/store/audit.ts';
import { addTotp } from '../../../src/identity/store/signin/factors.ts';
import { findUser } from '../../../src/identity/store/users.ts';
import { untilLocked } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { test } from '../../support/until.ts';
import { addUser, openIdentity } from '../../support/users.ts';

const { url, sql } = await createDatabase();
const database = openIdentity({ after }, url);
await migrate(database, SCHEMA);
const other = connect(url);
after(() => other.end());

/** As a sign-in by password alone sets up the first app: without a caller. */
async function enrolByPassword(userId: string) {
  const checkedAt = (await findUser(database, userId))?.updated_at;
  assert.ok(checkedAt);
  const key = createTotpKey('identity-secret-for-tests-0123456789abcdef');
  const sealed = sealSecret(key, 'c2VjcmV0', userId);
  return addTotp(database, COMMAND_LINE, sealed, 1, checkedAt);
}

const appsOf = async (userId: string) =>
  (await sql`select from identity.totp where user_id = ${userId}`).length;

test('the password alone sets up an app only while the account has no second factor', async () => {
  const first = await addUser(database, 'first-app');
  assert.ok(await enrolByPassword(first));
  assert.equal(await appsOf(first), 1);

  const overtaken = await addUser(database, 'overtaken-app');
  let enrolment: ReturnType<typeof enrolByPassword> | undefined;
  await other.begin(async (held) => {
    await held`update identity.users set second_factor = true where id = ${overtaken}`;
    enrolment = enrolByPassword(overtaken);
    await untilLocked(sql, 1);
  });
  assert.equal(await enrolment, null);
  assert.equal(await appsOf(overtaken), 0);
});

test('the password alone sets up no app after the password has changed', async () => {
  const user = await addUser(database, 'changed-password');
  let enrolment: ReturnType<typeof enrolByPassword> | undefined;
  await other.begin(async (held) => {
    await held`select from identity.users where id = ${user} for update`;
    enrolment = enrolByPassword(user);
    await untilLocked(sql, 1);
    await held`update identity.users set password_hash = 'x', updated_at = now() + interval '1 s'
      where id = ${user}`;
  });
  assert.equal(await enrolment, null);
  assert.equal(await appsOf(user), 0);
});

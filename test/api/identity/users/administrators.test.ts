/**
 * There is always an enabled super administrator who can log in: not the last one, nor two at the
 * same time, can end that.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { type Person, startIdentity } from '../../../support/api-users.ts';
import { ask, startGatehouse } from '../../../support/gatehouse.ts';
import { meanwhile } from '../../../support/meanwhile.ts';
import { assertError, assertSuccess, isOpen } from '../../../support/users.ts';

const { identity, databaseUrl, sql, call, enter, key } = await startIdentity({ after });
const replica = (await startGatehouse({ after }, ['identity'], databaseUrl)).url.identity;
const chief = await enter();
const second = await enter();
const plain = await enter();

const ENDINGS = ['demoted', 'disabled', 'deleted'] as const;
type Ending = (typeof ENDINGS)[number];
const BODIES = { demoted: { super_admin: false }, disabled: { enabled: false } } as const;

/** `by` ends the right of `of` as an administrator, through the replica at `url`. */
function end({ token: bearer }: Person, { id }: Person, ending: Ending, url = identity) {
  const path = `${url}/api/user/${id}`;
  return ending === 'deleted'
    ? ask('DELETE', path, { bearer })
    : ask('PATCH', path, { bearer, body: BODIES[ending] });
}

/** Makes exactly these users enabled super administrators, and makes all sessions active again. */
async function only(...administrators: readonly Person[]) {
  const ids = administrators.map(({ id }) => id);
  // A deletion has erased the hash.
  await sql`
    update identity.users set enabled = true, deleted_at = null, sessions_end_at = null,
      super_admin = id in ${sql(ids)}, password_generated = false,
      password_hash = coalesce(password_hash, 'erased')`;
  await sql`update identity.sessions set revoked = false, logged_out = false`;
}

const rowOf = async ({ id }: Person) =>
  (await sql`select * from identity.users where id = ${id}`)[0];
const left = async () =>
  (
    await sql`select id from identity.users where super_admin and enabled and deleted_at is null`
  ).map((row) => String(row.id));

/** Who does not count as another administrator. */
const NOBODY = {
  'is disabled': { enabled: false },
  'is deleted': { deleted_at: new Date() },
  'has no password': { password_hash: null },
  'has a password that expires': { password_generated: true },
};

for (const ending of ENDINGS) {
  test(`the last administrator who can log in cannot be ${ending}, not even by themselves`, async () => {
    for (const [what, state] of Object.entries(NOBODY)) {
      await only(chief, second);
      await sql`update identity.users set ${sql(state)} where id = ${second.id}`;
      const before = await rowOf(chief);
      for (const bearer of [chief, { ...chief, token: (await key(chief)).key }]) {
        const answer = await end(bearer, chief, ending);
        assert.equal(answer.status, 409, what);
        assertError(answer, 409, 'conflict');
      }
      assert.deepEqual(await rowOf(chief), before);
      assert.equal(await isOpen(identity, chief.token), true);
    }
    // Whoever is no administrator can go, and so can this one beside another.
    await only(chief, second);
    for (const person of [plain, chief]) assertSuccess(await end(chief, person, ending));
    assert.deepEqual(await left(), [second.id]);
  });

  test(`of two administrators who have each other ${ending} at once, one succeeds`, () =>
    assertOneWins(ending, [chief, second], [second, chief], ending === 'demoted' ? 403 : 401));
}

test('of two administrators who end their own rights at once, one remains', () =>
  assertOneWins('demoted', [chief, chief], [second, second], 409));

/** Both wait for the same rows, at two replicas. */
async function assertOneWins(
  ending: Ending,
  [by, of]: readonly [Person, Person],
  [byOther, ofOther]: readonly [Person, Person],
  lost: 401 | 403 | 409,
) {
  await only(chief, second);
  const answers = await meanwhile(
    sql,
    (held) =>
      held`select from identity.users where id in ${held([chief.id, second.id])} for update`,
    () => [end(by, of, ending), end(byOther, ofOther, ending, replica)],
  );
  assert.deepEqual(answers.map(({ status }) => status).sort(), [200, lost]);
  assert.equal((await left()).length, 1);
}

test('the last administrator may be changed in everything else, but not in part', async () => {
  await only(chief);
  const path = `/api/user/${chief.id}`;
  const allowed = { first_name: 'Chief', verified: true, enabled: true, super_admin: true };
  assertSuccess(await call(chief.token, 'PATCH', path, allowed));
  for (const body of Object.values(BODIES)) {
    const answer = await call(chief.token, 'PATCH', path, { first_name: 'Changed', ...body });
    assertError(answer, 409, 'conflict');
  }
  assert.equal((await rowOf(chief))?.first_name, 'Chief');
});

/**
 * There is always an enabled super administrator: not the last one, nor two at the same time, can
 * end that.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { connect } from '../../../../scripts/postgres.ts';
import { type Answer, ask, startGatehouse } from '../../../support/gatehouse.ts';
import { startIdentity, type Person } from '../../../support/api-users.ts';
import { untilSql } from '../../../support/connections.ts';
import { assertError, assertSuccess, isOpen } from '../../../support/users.ts';
import { rounds } from '../../../support/rounds.ts';

const { identity, databaseUrl, sql, admin, call, enter, key } = await startIdentity({ after });
const replica = (await startGatehouse({ after }, ['identity'], databaseUrl)).url.identity;
const other = connect(databaseUrl);
after(() => other.end());
const people = [await enter(), await enter(), await enter()] as const;

type Ending = 'demoted' | 'disabled' | 'deleted';
const BODIES = { demoted: { super_admin: false }, disabled: { enabled: false } } as const;

/** `by` ends the right of `of` as an administrator, through the replica at `url`. */
function end(by: Person, of: { id: string }, ending: Ending, url = identity): Promise<Answer> {
  const path = `${url}/api/user/${of.id}`;
  return ending === 'deleted'
    ? ask('DELETE', path, { bearer: by.token })
    : ask('PATCH', path, { bearer: by.token, body: BODIES[ending] });
}

/** Makes exactly these users enabled super administrators, and makes all sessions active again. */
async function only(...administrators: readonly Person[]) {
  const ids = administrators.map(({ id }) => id);
  // A deletion has erased the hash.
  await sql`
    update identity.users set enabled = true, deleted_at = null, sessions_end_at = null,
      super_admin = id in ${sql(ids)},
      password_hash = coalesce(password_hash, 'erased')`;
  await sql`update identity.sessions set revoked = false, logged_out = false`;
}

const left = async () =>
  (
    await sql`select id from identity.users where super_admin and enabled and deleted_at is null`
  ).map((row) => String(row.id));

for (const ending of ['demoted', 'disabled', 'deleted'] as const) {
  test(`the last enabled super administrator cannot be ${ending}, not even by themselves`, async () => {
    const [chief, second] = people;
    await only(chief, second);
    // A disabled or deleted user does not count as a remaining administrator.
    await sql`update identity.users set enabled = false where id = ${second.id}`;
    const before = (await sql`select * from identity.users where id = ${chief.id}`)[0];
    for (const bearer of [chief, { ...chief, token: (await key(chief)).key }]) {
      const answer = await end(bearer, chief, ending);
      assertError(answer, 409, 'conflict');
      assert.match(answer.json.error.message, /No other enabled super administrator/);
    }
    assert.deepEqual((await sql`select * from identity.users where id = ${chief.id}`)[0], before);
    assert.equal(await isOpen(identity, chief.token), true);

    await sql`update identity.users set enabled = true, deleted_at = now() where id = ${second.id}`;
    assertError(await end(chief, chief, ending), 409, 'conflict');

    // With another one beside them they may go.
    await sql`update identity.users set deleted_at = null where id = ${second.id}`;
    assertSuccess(await end(chief, chief, ending));
    assert.deepEqual(await left(), [second.id]);
  });
}

test('a user who is no enabled administrator can be removed, however few administrators are left', async () => {
  const [chief, plain] = people;
  for (const ending of ['demoted', 'disabled', 'deleted'] as const) {
    await only(chief);
    assertSuccess(await end(chief, plain, ending));
    assert.deepEqual(await left(), [chief.id]);
  }
});

test('the last administrator may be changed in everything else, but not in part', async () => {
  const [chief] = people;
  await only(chief);
  const path = `/api/user/${chief.id}`;
  assertSuccess(
    await call(chief.token, 'PATCH', path, {
      first_name: 'Chief',
      verified: true,
      enabled: true,
      super_admin: true,
    }),
  );
  assertError(
    await call(chief.token, 'PATCH', path, { first_name: 'Changed', enabled: false }),
    409,
    'conflict',
  );
  assertError(
    await call(chief.token, 'PATCH', path, {
      first_name: 'Changed',
      super_admin: false,
      username: 'changed',
    }),
    409,
    'conflict',
  );
  const { data } = (await call(chief.token, 'GET', path)).json;
  assert.deepEqual([data.first_name, data.username], ['Chief', chief.username]);
});

/**
 * The other request finds its caller signed out, a user gone, the last administrator, or its caller
 * without the right.
 */
function assertLost(answer: Answer) {
  if (answer.status === 401) return assertError(answer, 401, 'unauthorized');
  if (answer.status === 404) return assertError(answer, 404, 'not_found');
  return answer.status === 409
    ? assertError(answer, 409, 'conflict')
    : assertError(answer, 403, 'forbidden');
}

for (const ending of ['demoted', 'disabled', 'deleted'] as const) {
  test(`of two administrators who have each other ${ending} at once, one succeeds`, async () => {
    const [one, two] = people;
    for (let round = 0; round < rounds(5, 25); round += 1) {
      await only(one, two);
      const answers = await Promise.all([
        end(one, two, ending, identity),
        end(two, one, ending, round % 2 === 0 ? identity : replica),
      ]);
      const won = answers.filter((answer) => answer.status === 200);
      assert.equal(won.length, 1, answers.map((answer) => answer.text).join('\n'));
      for (const answer of answers) if (answer.status !== 200) assertLost(answer);
      assert.deepEqual(await left(), [answers[0]?.status === 200 ? one.id : two.id]);
    }
  });
}

test('of two administrators who end their own rights at once, one remains', async () => {
  const [one, two] = people;
  for (let round = 0; round < rounds(5, 25); round += 1) {
    await only(one, two);
    const answers = await Promise.all([
      end(one, one, 'demoted', identity),
      end(two, two, 'demoted', replica),
    ]);
    assert.deepEqual(answers.map((answer) => answer.status).sort(), [200, 409]);
    assert.equal((await left()).length, 1);
  }
});

test('of three administrators who demote each other in a ring, one remains', async () => {
  const [one, two, three] = people;
  for (let round = 0; round < rounds(5, 25); round += 1) {
    await only(one, two, three);
    const answers = await Promise.all([
      end(one, two, 'demoted', identity),
      end(two, three, 'demoted', replica),
      end(three, one, 'demoted', identity),
    ]);
    assert.deepEqual(answers.map((answer) => answer.status).sort(), [200, 200, 403]);
    assert.equal((await left()).length, 1);
  }
});

test('two administrators who wait for the same rows do not both succeed', async () => {
  const [one, two] = people;
  const waiting = () =>
    sql<Array<{ pid: number }>>`select pid from pg_stat_activity where datname = current_database()
      and wait_event_type = 'Lock'`;
  for (const ending of ['demoted', 'disabled', 'deleted'] as const) {
    await only(one, two);
    const answers: Array<Promise<Answer>> = [];
    await other.begin(async (held) => {
      await held`select from identity.users where id in ${held([one.id, two.id])} for update`;
      answers.push(end(one, two, ending, identity), end(two, one, ending, replica));
      await untilSql(async () => (await waiting()).length === 2, 'both wait');
    });
    const statuses = (await Promise.all(answers)).map((answer) => answer.status);
    assert.deepEqual(statuses.sort(), [200, ending === 'demoted' ? 403 : 401], ending);
    assert.equal((await left()).length, 1);
  }
});

test('an administrator who removes all others at once remains, and cannot be removed', async () => {
  const [one, two, three] = people;
  await only(one, two, three, admin);
  const answers = await Promise.all([
    end(one, two, 'demoted'),
    end(one, three, 'disabled', replica),
    end(one, admin, 'deleted'),
  ]);
  for (const answer of answers) assertSuccess(answer);
  assert.deepEqual(await left(), [one.id]);
  assertError(await end(one, one, 'demoted'), 409, 'conflict');
});

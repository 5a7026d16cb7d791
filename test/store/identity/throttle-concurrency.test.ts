/**
 * Many guesses at once get no further than one after the other: each failure is counted in one
 * statement before it is answered.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { PATIENT } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { type Answer, startGatehouse } from '../../support/gatehouse.ts';
import { BEHIND_PROXY, loginFrom, newAddress } from '../../support/logins.ts';
import { addUser, assertError, openIdentity } from '../../support/users.ts';

const { url: databaseUrl, sql } = await createDatabase();
/**
 * The attempts wait as long as a slow machine needs for all of them. With as many hashes at once as
 * there are clients, the statement alone must hold them to five.
 */
const start = async () => {
  const all = { ...BEHIND_PROXY, ...PATIENT, PASSWORD_HASHES: '32' };
  const { url } = await startGatehouse({ after }, ['identity'], databaseUrl, all, 'ready', 240_000);
  return url.identity;
};
const replicas = [await start(), await start()];
await addUser(openIdentity({ after }, databaseUrl), 'owner');

// On a slow machine, the first delay of 15 seconds would be over before the last attempt.
await sql`
  create function prolong_delay() returns trigger language plpgsql as
    'begin new.blocked_until = new.blocked_until + interval ''1 day''; return new; end'`;
await sql`
  create trigger prolong_delay before update on identity.throttles
  for each row when (new.blocked_until > now()) execute function prolong_delay()`;

const CLIENTS = 32;
const replica = (index: number) => replicas[index % replicas.length] ?? '';
const CODES = new Map([
  [401, 'invalid_credentials'],
  [429, 'too_many_requests'],
  [503, 'overloaded'],
]);

/** Everything but the five must be told to wait. @returns how many got 401 */
function judge(answers: readonly Answer[]): number {
  for (const answer of answers) assertError(answer, answer.status, CODES.get(answer.status) ?? '');
  return answers.filter(({ status }) => status === 401).length;
}

for (const name of ['owner', 'nobody-here']) {
  test(`of ${CLIENTS} concurrent wrong logins for "${name}" from one network, five are 401`, async () => {
    await sql`delete from identity.throttles`;
    await sql`delete from identity.audit`;
    const address = newAddress();
    const answers = await Promise.all(
      Array.from({ length: CLIENTS }, (_, index) => loginFrom(replica(index), address, name)),
    );
    const limited = answers.filter(({ status }) => status === 429).length;
    assert.deepEqual([judge(answers), limited], [5, CLIENTS - 5]);
    // Those that had been let in before the fifth failure are counted, though they learn nothing.
    const counts = await sql`select attempts::int as n from identity.throttles`;
    const { length } = await sql`select from identity.audit where event = 'login.failed'`;
    assert.deepEqual([...counts], Array(3).fill({ n: length }));
  });
}

test(`${CLIENTS} concurrent wrong logins from as many networks are all counted`, async () => {
  await sql`delete from identity.throttles`;
  const answers = await Promise.all(
    Array.from({ length: CLIENTS }, (_, index) => loginFrom(replica(index), newAddress(), 'owner')),
  );
  assert.equal(judge(answers), CLIENTS);
  const [row] = await sql`
    select max(attempts) as most, count(*)::int as rows from identity.throttles`;
  assert.deepEqual({ ...row }, { most: CLIENTS, rows: 2 * CLIENTS + 1 });
});

/**
 * Failed logins are counted for each account and network: guessing slows down, also by many at
 * once, and no attacker locks the owner out.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import { Failure } from '../../../../src/platform/http/route/errors.ts';
import { COMMAND_LINE } from '../../../../src/identity/store/audit.ts';
import { changeUser, removeUser } from '../../../../src/identity/users.ts';
import { PATIENT } from '../../../support/connections.ts';
import { createEmptyDatabase } from '../../../support/database.ts';
import { ask, launch, startGatehouse } from '../../../support/gatehouse.ts';
import {
  BEHIND_PROXY,
  fillFailures,
  loginFrom,
  loginsFrom,
  newAddress,
  passTime,
} from '../../../support/logins.ts';
import {
  addUser,
  assertError,
  assertSuccess,
  openIdentity,
  PASSWORD,
} from '../../../support/users.ts';

/** With as many hashes at once as there are clients, the statement alone must hold them to five. */
const CLIENTS = 32;
const SETTINGS = { ...BEHIND_PROXY, ...PATIENT, PASSWORD_HASHES: String(CLIENTS) };
/** Attempts at once wait as long as a slow machine needs for all of them. */
const ANSWER_MS = 240_000;
const owner = { after };
const { identity, databaseUrl, sql } = await launch(['identity'], SETTINGS, owner, ANSWER_MS);
const replica = (
  await startGatehouse(owner, ['identity'], databaseUrl, SETTINGS, 'ready', ANSWER_MS)
).url.identity;
const database = openIdentity(owner, databaseUrl);
await addUser(database, 'ada');
await addUser(database, 'grace');

/** Each 429 is delayed. */
const FIVE_THEN_NONE = [401, 401, 401, 401, 401, 429];
const OTHER = 'another passphrase';
beforeEach(() => sql`delete from identity.throttles`);

const attempts = (address: string, name: string, count: number) =>
  loginsFrom(identity, address, name, count);
/** One wrong password from each of so many networks. */
async function spread(name: string, count: number) {
  for (let index = 0; index < count; index += 1)
    assert.deepEqual(await attempts(newAddress(), name, 1), [401]);
}
/** The hundred failures of an hour for this name. */
async function exhaust(name: string) {
  await spread(name, 2);
  // The account's row is the only one that has seen both.
  await fillFailures(sql, 2, 99);
  await spread(name, 1);
}
async function assertEnters(
  address: string,
  name: string,
  password = PASSWORD,
  url = identity,
): Promise<string> {
  const answer = await loginFrom(url, address, name, password);
  assertSuccess(answer);
  return answer.json.data.session;
}
async function assertWaits(address: string, name: string, password = PASSWORD, url = identity) {
  const answer = await loginFrom(url, address, name, password);
  assertError(answer, 429, 'too_many_requests');
  return Number(answer.headers.get('retry-after'));
}
const change = (bearer: string, current: string, next: string, address: string) =>
  ask('POST', `${identity}/api/auth/password`, {
    bearer,
    body: { current_password: current, new_password: next },
    headers: { 'x-forwarded-for': address },
  });
async function done<T>(work: Promise<T>) {
  assert.ok(!((await work) instanceof Failure));
}
const rename = (id: string, username: string) =>
  done(changeUser(database, COMMAND_LINE, id, { username }));

test('wrong passwords by username and address, in any spelling, count together', async () => {
  const address = newAddress();
  const statuses: number[] = [];
  for (const name of ['ada', 'ada@example.org', 'ADA', 'ａda', 'ADA@example.org', 'adA'])
    statuses.push(...(await attempts(address, name, 1)));
  assert.deepEqual(statuses, FIVE_THEN_NONE);
});

for (const [what, name] of [
  ['that exists', 'ada'],
  ['that does not exist', 'nobody-here'],
] as const) {
  test(`after five wrong passwords from one network it is 429, for an account ${what}`, async () => {
    const address = newAddress();
    assert.deepEqual(await attempts(address, name, 7), [...FIVE_THEN_NONE, 429]);
    const wrong = await loginFrom(identity, address, name);
    const seconds = Number(wrong.headers.get('retry-after'));
    assert.ok(seconds >= 1 && seconds <= 15, `told to wait for ${seconds} s`);
    // Nor is it counted, and the right password is rejected, too.
    const right = await loginFrom(identity, address, name, PASSWORD);
    assertError(right, 429, 'too_many_requests');
    assert.deepEqual(right.json.error, wrong.json.error);
    assert.equal((await sql`select from identity.throttles where attempts <> 5`).length, 0);
  });

  test(`the 100th failure in an hour blocks unknown networks, for an account ${what}`, async () => {
    await spread(name, 2);
    await fillFailures(sql, 2, 98);
    await spread(name, 2);
    const seconds = await assertWaits(newAddress(), name, PASSWORD, replica);
    // Until the oldest of the hundred is an hour old.
    assert.ok(seconds > 1_700 && seconds <= 1_800, `told to wait for ${seconds} s`);
    await passTime(sql, 1_800);
    await spread(name, 1);
  });
}

test('a count ends with the right password once the delay is over, or after twelve hours', async () => {
  const address = newAddress();
  assert.deepEqual(await attempts(address, 'ada', 6), FIVE_THEN_NONE);
  await passTime(sql, 15);
  await assertEnters(address, 'ada');
  assert.deepEqual(await attempts(address, 'ada', 6), FIVE_THEN_NONE);
  await passTime(sql, 12 * 3_600);
  assert.deepEqual(await attempts(address, 'ada', 6), FIVE_THEN_NONE);
});

test('another network and another account are not affected, and an IPv6 /64 is one network', async () => {
  const one = '2001:db8:1:2::1';
  const two = '2001:db8:1:2:ffff::2';
  assert.deepEqual(
    [...(await attempts(one, 'ada', 3)), ...(await attempts(two, 'ada', 3))],
    FIVE_THEN_NONE,
  );
  await assertEnters('2001:db8:1:3::1', 'ada');
  await assertEnters(one, 'grace');
  // And the success elsewhere has cleared nothing here.
  assert.deepEqual(await attempts(one, 'ada', 1), [429]);
});

test('a wrong current password is counted in the same place as a wrong login', async () => {
  const address = newAddress();
  const bearer = await assertEnters(address, 'ada');
  for (let count = 1; count <= 3; count += 1)
    assertError(await change(bearer, 'wrong', OTHER, address), 401, 'invalid_credentials');
  assert.deepEqual(await attempts(address, 'ada', 2), [401, 401]);
  for (const password of ['wrong', PASSWORD])
    assertError(await change(bearer, password, OTHER, address), 429, 'too_many_requests');
  await assertWaits(address, 'ada');
  // From elsewhere the owner of the session may, and then has cleared that place alone.
  const changed = await change(bearer, PASSWORD, OTHER, newAddress());
  assertSuccess(changed);
  const { session } = changed.json.data;
  assertError(await change(session, OTHER, PASSWORD, address), 429, 'too_many_requests');
  await passTime(sql, 15);
  assertSuccess(await change(session, OTHER, PASSWORD, address));
  assert.deepEqual(await attempts(address, 'ada', 5), FIVE_THEN_NONE.slice(0, 5));
});

/** `test/store/db/throttle.test.ts` has the 90 days for which a network is known. */
test('failures elsewhere do not lock out networks that are known', async () => {
  const home = '2001:db8:5:5::1';
  await assertEnters(home, 'ada');
  await exhaust('ada');
  await assertWaits(newAddress(), 'ada');
  await assertEnters('2001:db8:5:5::2', 'ada', PASSWORD, replica);
  // There, too, guessing is slowed down, but no more than anywhere.
  assert.deepEqual(await attempts(home, 'ada', 6), FIVE_THEN_NONE);
});

test('the networks of a login and of a new password are known, also under another name', async () => {
  const id = await addUser(database, 'before');
  const home = newAddress();
  const office = newAddress();
  assertSuccess(await change(await assertEnters(home, 'before'), PASSWORD, OTHER, office));
  for (const username of ['after', 'before']) {
    await rename(id, username);
    await exhaust(username);
    await assertWaits(newAddress(), username, OTHER);
    for (const place of [home, office]) await assertEnters(place, username, OTHER, replica);
    await passTime(sql, 3_600);
  }
});

test('the next user of a name inherits none of its known networks', async () => {
  const first = await addUser(database, 'reused');
  const home = newAddress();
  const own = newAddress();
  await assertEnters(home, 'reused');
  await done(removeUser(database, COMMAND_LINE, first));
  await addUser(database, 'reused');
  await assertEnters(own, 'reused');
  await exhaust('reused');
  await assertWaits(home, 'reused');
  await assertEnters(own, 'reused', PASSWORD, replica);
});

test('no answer to a guess tells that an account was made, renamed or deleted', async () => {
  const address = newAddress();
  assert.deepEqual(await attempts(address, 'made', 6), FIVE_THEN_NONE);
  const id = await addUser(database, 'made');
  assert.deepEqual(await attempts(address, 'made', 1), [429]);
  await rename(id, 'renamed');
  assert.deepEqual(await attempts(address, 'made', 1), [429]);
  assert.deepEqual(await attempts(address, 'renamed', 6), FIVE_THEN_NONE);
  await done(removeUser(database, COMMAND_LINE, id));
  assert.deepEqual(await attempts(address, 'renamed', 1), [429]);
});

test('the 1,000th failure from one network blocks it, except for known accounts', async () => {
  const office = newAddress();
  await assertEnters(office, 'grace');
  for (const name of ['spray-1', 'spray-2'])
    assert.deepEqual(await attempts(office, name, 1), [401]);
  // The network's row is the only one that has seen both.
  await fillFailures(sql, 2, 998);
  for (const name of ['spray-3', 'spray-4'])
    assert.deepEqual(await attempts(office, name, 1), [401]);
  for (const name of ['spray-5', 'ada']) await assertWaits(office, name);
  await assertEnters(office, 'grace', PASSWORD, replica);
  await assertEnters(newAddress(), 'ada');
  await passTime(sql, 1_800);
  await assertEnters(office, 'ada');
});

test('the throttles do not disclose what was tried, and keys differ by database', async (t) => {
  const other = await createEmptyDatabase(t);
  const there = (await startGatehouse(t, ['identity'], other.url, BEHIND_PROXY)).url.identity;
  // People type their password where the name belongs.
  const tried = [
    'Typed-Into-The-Wrong-Field-7',
    'a-mistyped-passphrase-8',
    '203.0.113.77',
  ] as const;
  const [name, password, address] = tried;
  for (const at of [identity, there])
    assertError(await loginFrom(at, address, name, password), 401, 'invalid_credentials');
  const rowsOf = (on: typeof sql) =>
    on<Array<{ key: Buffer; text: string }>>`
      select key, throttles::text as text from identity.throttles`;
  const rows = [...(await rowsOf(sql)), ...(await rowsOf(other.sql))];
  for (const { key, text } of rows) {
    assert.equal(key.length, 32);
    for (const told of [...tried, name.toLowerCase()]) {
      const digest = createHash('sha256').update(told).digest('hex');
      for (const form of [told, Buffer.from(told).toString('hex'), digest])
        assert.ok(!text.includes(form), told);
    }
  }
  assert.equal(rows.length, 6);
  assert.equal(new Set(rows.map(({ key }) => key.toString('hex'))).size, 6);
});

// --- At once: `test/store/db/throttle.test.ts` has attempts from many networks

for (const name of ['ada', 'nobody-here']) {
  test(`of ${CLIENTS} concurrent wrong logins for "${name}" from one network, five are 401`, async (t) => {
    // On a slow machine, the first delay of 15 seconds would be over before the last attempt.
    await sql`
      create function prolong_delay() returns trigger language plpgsql as
        'begin new.blocked_until = new.blocked_until + interval ''1 day''; return new; end'`;
    await sql`
      create trigger prolong_delay before update on identity.throttles
      for each row when (new.blocked_until > now()) execute function prolong_delay()`;
    t.after(() => sql`drop function prolong_delay cascade`);
    await sql`delete from identity.audit`;
    const address = newAddress();
    const sent = Array.from({ length: CLIENTS }, (_, index) =>
      loginFrom(index % 2 === 0 ? identity : replica, address, name),
    );
    const answers = await Promise.all(sent);
    const statuses = answers.map(({ status }) => status).sort();
    assert.deepEqual(statuses, [...FIVE_THEN_NONE.slice(0, 5), ...Array(CLIENTS - 5).fill(429)]);
    // Those that had been let in before the fifth failure are counted, though they learn nothing.
    const counts = await sql`select attempts::int as n from identity.throttles`;
    const { length } = await sql`select from identity.audit where event = 'login.failed'`;
    assert.deepEqual([...counts], Array(3).fill({ n: length }));
  });
}

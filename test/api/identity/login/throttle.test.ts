/**
 * Failed logins are counted for each account and network: guessing slows down, and no attacker
 * locks the owner out.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import { Failure } from '../../../../src/platform/http/route/errors.ts';
import { COMMAND_LINE } from '../../../../src/identity/store/audit.ts';
import { changeUser, removeUser } from '../../../../src/identity/users.ts';
import { createDatabase, createEmptyDatabase } from '../../../support/database.ts';
import { ask, startGatehouse } from '../../../support/gatehouse.ts';
import {
  BEHIND_PROXY,
  fillFailures,
  loginFrom,
  loginsFrom,
  passTime,
  newAddress,
} from '../../../support/logins.ts';
import {
  addUser,
  assertError,
  assertSuccess,
  openIdentity,
  PASSWORD,
} from '../../../support/users.ts';

const { url: databaseUrl, sql } = await createDatabase();
const { identity, metrics } = (
  await startGatehouse({ after }, ['identity'], databaseUrl, BEHIND_PROXY)
).url;
const replica = (await startGatehouse({ after }, ['identity'], databaseUrl, BEHIND_PROXY)).url
  .identity;
const direct = (await startGatehouse({ after }, ['identity'], databaseUrl)).url.identity;
const database = openIdentity({ after }, databaseUrl);
await addUser(database, 'ada');
await addUser(database, 'grace');

/** Each 429 is delayed. */
const FIVE_THEN_NONE = [401, 401, 401, 401, 401, 429];
beforeEach(async () => {
  await sql`delete from identity.throttles`;
});

test('wrong passwords by username and by e-mail address count together', async () => {
  const address = newAddress();
  const statuses: number[] = [];
  for (const name of ['ada', 'ada@example.org', 'ada', 'ada@example.org', 'ada', 'ada@example.org'])
    statuses.push((await loginFrom(identity, address, name)).status);
  assert.deepEqual(statuses, [401, 401, 401, 401, 401, 429]);
});

for (const [what, name] of [
  ['that exists', 'ada'],
  ['that does not exist', 'nobody-here'],
] as const) {
  test(`after five wrong passwords from one network it is 429, for an account ${what}`, async () => {
    const address = newAddress();
    for (let count = 1; count <= 5; count += 1)
      assertError(await loginFrom(identity, address, name), 401, 'invalid_credentials');
    const refused = await loginFrom(identity, address, name);
    assertError(refused, 429, 'too_many_requests');
    const seconds = Number(refused.headers.get('retry-after'));
    assert.ok(seconds >= 1 && seconds <= 15, `told to wait for ${seconds} s`);
  });
}

test('the delay doubles from 15 seconds to 15 minutes', async () => {
  const address = newAddress();
  assert.deepEqual(await loginsFrom(identity, address, 'ada', 4), [401, 401, 401, 401]);
  for (const delay of [15, 30, 60, 120, 240, 480, 900, 900]) {
    const { status } = await loginFrom(identity, address, 'ada');
    assert.equal(status, 401, `the attempt before the delay of ${delay} s`);
    const [row] = await sql`select extract(epoch from blocked_until - now())::float8 as seconds
      from identity.throttles where blocked_until > now()`;
    // Less than the whole delay by what has passed since the failure.
    assert.ok(row?.seconds > delay - 15 && row?.seconds <= delay, `${row?.seconds} of ${delay} s`);
    await passTime(sql, delay);
  }
});

test('a throttled attempt is not counted, and the right password is rejected too', async () => {
  const address = newAddress();
  assert.deepEqual(await loginsFrom(identity, address, 'ada', 7), [...FIVE_THEN_NONE, 429]);
  const wrong = await loginFrom(identity, address, 'ada');
  const right = await loginFrom(identity, address, 'ada', PASSWORD);
  assertError(right, 429, 'too_many_requests');
  assert.deepEqual(right.json.error, wrong.json.error);
  assert.equal((await sql`select from identity.throttles where attempts <> 5`).length, 0);
});

test('the answer to a throttled attempt is delayed', async () => {
  const address = newAddress();
  await loginsFrom(identity, address, 'ada', 5);
  const look = async () => {
    const { text } = await ask('GET', `${metrics}/metrics`);
    const valueOf = (name: string) => Number(new RegExp(`^${name}.* (\\d+)$`, 'm').exec(text)?.[1]);
    return {
      throttled: valueOf('gatehouse_password_checks_total\\{outcome="throttled"'),
      inFlight: valueOf('gatehouse_requests_in_flight\\{service="identity"'),
    };
  };
  // On a slow machine a look may come after the delay.
  let isDelayed = false;
  for (let tries = 0; tries < 10 && !isDelayed; tries += 1) {
    const before = (await look()).throttled || 0;
    const attempt = loginFrom(identity, address, 'ada');
    let seen = await look();
    while (!(seen.throttled > before)) seen = await look();
    isDelayed = seen.inFlight === 1;
    assertError(await attempt, 429, 'too_many_requests');
  }
  assert.ok(isDelayed);
});

test('the right password clears the count once the delay is over', async () => {
  const address = newAddress();
  assert.deepEqual(await loginsFrom(identity, address, 'ada', 6), FIVE_THEN_NONE);
  await passTime(sql, 15);
  assertSuccess(await loginFrom(identity, address, 'ada', PASSWORD));
  assert.deepEqual(await loginsFrom(identity, address, 'ada', 6), FIVE_THEN_NONE);
});

test('failures are forgotten after twelve hours', async () => {
  const address = newAddress();
  assert.deepEqual(await loginsFrom(identity, address, 'ada', 6), FIVE_THEN_NONE);
  await passTime(sql, 12 * 3_600);
  assert.deepEqual(await loginsFrom(identity, address, 'ada', 6), FIVE_THEN_NONE);
});

test('a name in any case and Unicode spelling is counted as one account', async () => {
  const address = newAddress();
  const statuses: number[] = [];
  for (const name of ['grace', 'GRACE', 'Grace', 'ｇrace', 'gracE', 'ＧＲＡＣＥ'])
    statuses.push((await loginFrom(identity, address, name)).status);
  assert.deepEqual(statuses, FIVE_THEN_NONE);
});

test('another network and another account are not affected', async () => {
  const one = newAddress();
  const other = newAddress();
  assert.deepEqual(await loginsFrom(identity, one, 'ada', 6), FIVE_THEN_NONE);
  assertSuccess(await loginFrom(identity, other, 'ada', PASSWORD));
  assertSuccess(await loginFrom(identity, one, 'grace', PASSWORD));
  // And the success elsewhere has cleared nothing here.
  assert.deepEqual(await loginsFrom(identity, one, 'ada', 1), [429]);
});

test('an IPv6 /64 is one network, and so is an IPv4 address, also written as IPv6', async () => {
  const spread = [
    '2001:db8:1:2::1',
    '2001:db8:1:2:ffff::2',
    '2001:0db8:0001:0002:0:0:0:3',
    '2001:db8:1:2:a:b:c:d',
    '2001:db8:1:2::',
    '2001:db8:1:2::ffff',
  ];
  const statuses: number[] = [];
  for (const address of spread) statuses.push((await loginFrom(identity, address, 'ada')).status);
  assert.deepEqual(statuses, FIVE_THEN_NONE);
  for (const address of ['2001:db8:1:3::1', '2001:db8::1', '2001:db8:0:2::1'])
    assert.deepEqual(await loginsFrom(identity, address, 'ada', 1), [401], address);

  assert.deepEqual(await loginsFrom(identity, '192.0.2.7', 'ada', 3), [401, 401, 401]);
  assert.deepEqual(await loginsFrom(identity, '::ffff:192.0.2.7', 'ada', 3), [401, 401, 429]);
  assert.deepEqual(await loginsFrom(identity, '192.0.2.8', 'ada', 1), [401]);
});

test('an invented X-Forwarded-For changes nothing without a trusted proxy', async () => {
  const statuses: number[] = [];
  for (let count = 1; count <= 6; count += 1)
    statuses.push((await loginFrom(direct, newAddress(), 'ada')).status);
  assert.deepEqual(statuses, FIVE_THEN_NONE);
  // Behind a trusted proxy, what stands left of the address that the proxy has seen is the client's
  // own invention.
  const address = newAddress();
  statuses.length = 0;
  for (let count = 1; count <= 6; count += 1)
    statuses.push((await loginFrom(identity, `${newAddress()}, ${address}`, 'grace')).status);
  assert.deepEqual(statuses, FIVE_THEN_NONE);
});

test('a wrong current password is counted in the same place as a wrong login', async () => {
  const address = newAddress();
  const OTHER = 'another passphrase';
  let bearer = (await loginFrom(identity, address, 'ada', PASSWORD)).json.data.session;
  const change = async (current_password: string, from = address, new_password = OTHER) => {
    const body = { current_password, new_password };
    const answer = await ask('POST', `${identity}/api/auth/password`, {
      bearer,
      body,
      headers: { 'x-forwarded-for': from },
    });
    if (answer.status === 200) bearer = answer.json.data.session;
    return answer;
  };
  for (let count = 1; count <= 3; count += 1)
    assertError(await change('not the password'), 401, 'invalid_credentials');
  assert.deepEqual(await loginsFrom(identity, address, 'ada', 2), [401, 401]);
  for (const password of ['not the password', PASSWORD])
    assertError(await change(password), 429, 'too_many_requests');
  assertError(await loginFrom(identity, address, 'ada', PASSWORD), 429, 'too_many_requests');
  // From elsewhere the owner of the session may, and then has cleared that place alone.
  assertSuccess(await change(PASSWORD, newAddress()));
  assertError(await change(OTHER, address, PASSWORD), 429, 'too_many_requests');
  await passTime(sql, 15);
  assertSuccess(await change(OTHER, address, PASSWORD));
  assert.deepEqual(await loginsFrom(identity, address, 'ada', 5), [401, 401, 401, 401, 401]);
});

for (const [what, name] of [
  ['that exists', 'ada'],
  ['that does not exist', 'nobody-here'],
] as const) {
  test(`the 100th failure in an hour blocks unknown networks, for an account ${what}`, async () => {
    for (const address of [newAddress(), newAddress()])
      assert.deepEqual(await loginsFrom(identity, address, name, 1), [401]);
    // The account's row is the only one that has seen both.
    await fillFailures(sql, 2, 98);
    assert.deepEqual(await loginsFrom(identity, newAddress(), name, 1), [401], 'the 99th');
    assert.deepEqual(await loginsFrom(identity, newAddress(), name, 1), [401], 'the 100th');
    const refused = await loginFrom(replica, newAddress(), name, PASSWORD);
    assertError(refused, 429, 'too_many_requests');
    // Until the oldest of the hundred is an hour old.
    const seconds = Number(refused.headers.get('retry-after'));
    assert.ok(seconds > 1_700 && seconds <= 1_800, `told to wait for ${seconds} s`);
    await passTime(sql, 1_800);
    assert.deepEqual(await loginsFrom(identity, newAddress(), name, 1), [401]);
  });
}

test('failures elsewhere do not lock out networks known for 90 days', async () => {
  const home = '2001:db8:5:5::1';
  const abroad = newAddress();
  assertSuccess(await loginFrom(identity, home, 'ada', PASSWORD));
  for (const address of [newAddress(), newAddress()])
    assert.deepEqual(await loginsFrom(identity, address, 'ada', 1), [401]);
  await fillFailures(sql, 2, 99);
  assert.deepEqual(await loginsFrom(identity, newAddress(), 'ada', 1), [401], 'the 100th');
  assertError(await loginFrom(identity, abroad, 'ada', PASSWORD), 429, 'too_many_requests');
  assertSuccess(await loginFrom(replica, '2001:db8:5:5::2', 'ada', PASSWORD));
  // There, too, guessing is slowed down, but no more than anywhere.
  assert.deepEqual(await loginsFrom(identity, home, 'ada', 6), FIVE_THEN_NONE);
  await sql`update identity.throttles set attempts = 0, blocked_until = null where attempts = 5`;
  await sql`update identity.throttles set known_until = known_until - interval '89 days'`;
  assert.deepEqual(await loginsFrom(identity, home, 'ada', 1), [401]);
  await sql`update identity.throttles set known_until = known_until - interval '2 days'`;
  assertError(await loginFrom(identity, home, 'ada', PASSWORD), 429, 'too_many_requests');
});

/** The hundred failures of an hour for this name, from two networks. */
async function exhaust(name: string): Promise<void> {
  for (const address of [newAddress(), newAddress()])
    assert.deepEqual(await loginsFrom(identity, address, name, 1), [401]);
  await fillFailures(sql, 2, 99);
  assert.deepEqual(await loginsFrom(identity, newAddress(), name, 1), [401], 'the 100th');
}

test('a rename keeps the networks that are known to the user', async () => {
  const id = await addUser(database, 'before');
  const home = newAddress();
  assertSuccess(await loginFrom(identity, home, 'before', PASSWORD));
  for (const username of ['after', 'before']) {
    assert.ok(!((await changeUser(database, COMMAND_LINE, id, { username })) instanceof Failure));
    await exhaust(username);
    const elsewhere = await loginFrom(identity, newAddress(), username, PASSWORD);
    assertError(elsewhere, 429, 'too_many_requests');
    assertSuccess(await loginFrom(replica, home, username, PASSWORD));
    await passTime(sql, 3_600);
  }
});

test('the next user of a name inherits none of its known networks', async () => {
  const first = await addUser(database, 'reused');
  const home = newAddress();
  assertSuccess(await loginFrom(identity, home, 'reused', PASSWORD));
  assert.ok(!((await removeUser(database, COMMAND_LINE, first)) instanceof Failure));
  await addUser(database, 'reused');
  const own = newAddress();
  assertSuccess(await loginFrom(identity, own, 'reused', PASSWORD));
  await exhaust('reused');
  assertError(await loginFrom(identity, home, 'reused'), 429, 'too_many_requests');
  assertSuccess(await loginFrom(replica, own, 'reused', PASSWORD));
});

test('a changed password makes its network known to the user', async () => {
  await addUser(database, 'changing');
  const bearer = (await loginFrom(identity, newAddress(), 'changing', PASSWORD)).json.data.session;
  const home = newAddress();
  const changed = await ask('POST', `${identity}/api/auth/password`, {
    bearer,
    body: { current_password: PASSWORD, new_password: 'another passphrase' },
    headers: { 'x-forwarded-for': home },
  });
  assertSuccess(changed);
  await exhaust('changing');
  assertSuccess(await loginFrom(identity, home, 'changing', 'another passphrase'));
});

test('no answer to a guess tells that an account was made, renamed or deleted', async () => {
  const address = newAddress();
  const blocked = async (name: string) =>
    assert.deepEqual(await loginsFrom(identity, address, name, 6), FIVE_THEN_NONE);
  await blocked('made');
  const id = await addUser(database, 'made');
  assert.deepEqual(await loginsFrom(identity, address, 'made', 1), [429]);
  assert.ok(
    !((await changeUser(database, COMMAND_LINE, id, { username: 'renamed' })) instanceof Failure),
  );
  assert.deepEqual(await loginsFrom(identity, address, 'made', 1), [429]);
  await blocked('renamed');
  assert.ok(!((await removeUser(database, COMMAND_LINE, id)) instanceof Failure));
  assert.deepEqual(await loginsFrom(identity, address, 'renamed', 1), [429]);
});

test('the 1,000th failure from one network blocks it, except for known accounts', async () => {
  const office = newAddress();
  const elsewhere = newAddress();
  assertSuccess(await loginFrom(identity, office, 'grace', PASSWORD));
  for (const name of ['spray-1', 'spray-2'])
    assert.deepEqual(await loginsFrom(identity, office, name, 1), [401]);
  // The network's row is the only one that has seen both.
  await fillFailures(sql, 2, 998);
  for (const name of ['spray-3', 'spray-4'])
    assert.deepEqual(await loginsFrom(identity, office, name, 1), [401]);
  for (const name of ['spray-5', 'ada'])
    assertError(await loginFrom(identity, office, name, PASSWORD), 429, 'too_many_requests');
  assertSuccess(await loginFrom(replica, office, 'grace', PASSWORD));
  assertSuccess(await loginFrom(identity, elsewhere, 'ada', PASSWORD));
  await passTime(sql, 1_800);
  assertSuccess(await loginFrom(identity, office, 'ada', PASSWORD));
});

test('the throttles do not disclose what was tried, and keys differ by database', async (t) => {
  const other = await createEmptyDatabase(t);
  const there = (await startGatehouse(t, ['identity'], other.url, BEHIND_PROXY)).url.identity;
  // People type their password where the name belongs.
  const name = 'Typed-Into-The-Wrong-Field-7';
  const password = 'a-mistyped-passphrase-8';
  const address = '203.0.113.77';
  for (const at of [identity, there])
    assertError(await loginFrom(at, address, name, password), 401, 'invalid_credentials');
  const rows = async (on: typeof sql) =>
    await on<
      Array<{ key: Buffer; text: string }>
    >`select key, throttles::text as text from identity.throttles`;
  const mine = await rows(sql);
  const theirs = await rows(other.sql);
  for (const { key, text } of [...mine, ...theirs]) {
    assert.equal(key.length, 32);
    for (const told of [name, name.toLowerCase(), password, address]) {
      for (const form of [
        told,
        Buffer.from(told).toString('hex'),
        createHash('sha256').update(told).digest('hex'),
      ])
        assert.ok(!text.includes(form), told);
    }
  }
  assert.deepEqual([mine.length, theirs.length], [3, 3]);
  assert.equal(new Set([...mine, ...theirs].map(({ key }) => key.toString('hex'))).size, 6);
});

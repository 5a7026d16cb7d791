/** The limits on wrong passphrases: per secret and network, and per secret. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import { type Answer, launch, startGatehouse, assertStatus } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import { BEHIND_PROXY, newAddress } from '../../support/logins.ts';

interface Kept {
  readonly id: string;
  readonly secret: string;
}

const TEXT = 'marked-password-text';
const PASSPHRASE = 'the right passphrase';
const WRONG = 'not the passphrase';

const { secrets: base, sql, databaseUrl } = await launch(['secrets'], BEHIND_PROXY);
const replica = (await startGatehouse({ after }, ['secrets'], databaseUrl, BEHIND_PROXY)).url
  .secrets;
const { keep, receipt } = secretsClient(base);

const locked = (max_reads?: number) =>
  keep(TEXT, { passphrase: PASSPHRASE, ...(max_reads === undefined ? {} : { max_reads }) });
const openFrom = (
  address: string,
  { id, secret }: Kept,
  passphrase: string,
  at = base,
): Promise<Answer> =>
  secretsClient(at, { 'x-forwarded-for': address }).decrypt(id, secret, passphrase);

/** One attempt after the other. @returns the status of each */
async function wrongFrom(address: string, kept: Kept, count: number, at = base): Promise<number[]> {
  const statuses: number[] = [];
  for (let index = 0; index < count; index += 1)
    statuses.push((await openFrom(address, kept, WRONG, at)).status);
  return statuses;
}

/** Moves all attempts into the past. */
const passTime = (seconds: number) => sql`
  update secrets.throttles set window_ends_at = window_ends_at - make_interval(secs => ${seconds}),
    blocked_until = blocked_until - make_interval(secs => ${seconds})`;

function assertThrottled(answer: Answer, atMost: number): void {
  assert.deepEqual(
    [answer.status, answer.json.error.code],
    [429, 'too_many_requests'],
    answer.text,
  );
  const seconds = Number(answer.headers.get('retry-after'));
  assert.ok(
    seconds > atMost - 60 && seconds <= atMost,
    `Retry-After: ${seconds}, expected at most ${atMost}`,
  );
}

const FIVE_THEN_NONE = [403, 403, 403, 403, 403, 429, 429];
const QUARTER = 15 * 60;
const DAY = 86_400;
beforeEach(async () => {
  await sql`delete from secrets.throttles`;
});

test('after 5 wrong passphrases from one network the correct one is 429 with Retry-After', async () => {
  const address = newAddress();
  const kept = await locked(1);
  assert.deepEqual(await wrongFrom(address, kept, 7), FIVE_THEN_NONE);
  const wrong = await openFrom(address, kept, WRONG);
  const right = await openFrom(address, kept, PASSPHRASE);
  for (const answer of [wrong, right]) assertThrottled(answer, QUARTER);
  assert.equal(wrong.text, right.text);
  const { status, reads, failed_reads } = (await receipt(kept.id)).json;
  assert.deepEqual(
    { status, reads, failed_reads },
    { status: 'stored', reads: 0, failed_reads: 5 },
  );
});

test('other networks and other secrets are not affected', async () => {
  const address = newAddress();
  const kept = await locked(1);
  assert.deepEqual(await wrongFrom(address, kept, 6), FIVE_THEN_NONE.slice(0, 6));
  assert.equal((await openFrom(address, await locked(), PASSPHRASE)).json.password, TEXT);
  assert.equal((await openFrom(newAddress(), kept, PASSPHRASE)).json.password, TEXT);
});

test('a network is an IPv6 /64 or an IPv4 address, also if mapped to IPv6', async () => {
  const kept = await locked();
  const spread = [
    '2001:db8:1:2::1',
    '2001:db8:1:2:ffff::2',
    '2001:0db8:0001:0002:0:0:0:3',
    '2001:db8:1:2:a:b:c:d',
    '2001:db8:1:2::',
    '2001:db8:1:2::ffff',
  ];
  const statuses: number[] = [];
  for (const address of spread) statuses.push((await openFrom(address, kept, WRONG)).status);
  assert.deepEqual(statuses, FIVE_THEN_NONE.slice(0, 6));
  for (const address of ['2001:db8:1:3::1', '2001:db8::1', '2001:db8:0:2::1']) {
    assert.equal((await openFrom(address, kept, PASSPHRASE)).status, 200, address);
  }
  assert.deepEqual(await wrongFrom('192.0.2.7', kept, 3), [403, 403, 403]);
  assert.deepEqual(await wrongFrom('::ffff:192.0.2.7', kept, 3), [403, 403, 429]);
  assert.equal((await openFrom('192.0.2.8', kept, PASSPHRASE)).status, 200);
});

test('replicas share the count', async () => {
  const address = newAddress();
  const kept = await locked();
  const statuses: number[] = [];
  for (const at of [base, replica, base, replica, replica, base, replica]) {
    statuses.push((await openFrom(address, kept, WRONG, at)).status);
  }
  assert.deepEqual(statuses, FIVE_THEN_NONE);
});

test('after 30 wrong passphrases from many networks a secret is blocked for a day', async () => {
  const kept = await locked(1);
  for (let count = 1; count <= 30; count += 1) {
    assert.deepEqual(
      await wrongFrom(newAddress(), kept, 1, count % 2 ? base : replica),
      [403],
      `attempt ${count}`,
    );
  }
  const late = newAddress();
  for (const address of [late, late, newAddress()])
    assertThrottled(await openFrom(address, kept, PASSPHRASE), DAY);
  assert.equal((await receipt(kept.id)).json.failed_reads, 30);
  assert.equal((await openFrom(late, await locked(), PASSPHRASE)).status, 200);
  await passTime(DAY - 30);
  assertThrottled(await openFrom(late, kept, PASSPHRASE), 30);
  await passTime(30);
  assert.equal((await openFrom(late, kept, PASSPHRASE)).json.password, TEXT);
});

test('a request rejected by the daily limit takes no attempt of its network', async () => {
  const kept = await locked(1);
  for (let count = 1; count <= 30; count += 1) await wrongFrom(newAddress(), kept, 1);
  const late = newAddress();
  for (let count = 1; count <= 6; count += 1)
    assertThrottled(await openFrom(late, kept, PASSPHRASE), DAY);
  // Only the daily limit is reached.
  await sql`delete from secrets.throttles where attempts >= 30`;
  assert.deepEqual(await wrongFrom(late, kept, 6), FIVE_THEN_NONE.slice(0, 6));
});

test('concurrent wrong passphrases from 50 networks: 30 attempts', async () => {
  const kept = await locked(1);
  const statuses = await Promise.all(
    Array.from(
      { length: 50 },
      async (_, index) =>
        (await openFrom(newAddress(), kept, WRONG, index % 2 ? base : replica)).status,
    ),
  );
  assert.equal(statuses.filter((status) => status === 403).length, 30);
  assert.equal(statuses.filter((status) => status === 429).length, 20);
});

test('a correct passphrase gives its attempt back, and does not clear wrong ones', async () => {
  const address = newAddress();
  const kept = await locked();
  assert.deepEqual(await wrongFrom(address, kept, 4), [403, 403, 403, 403]);
  for (let count = 1; count <= 40; count += 1) {
    assert.equal((await openFrom(address, kept, PASSPHRASE)).status, 200, `read ${count}`);
  }
  assert.deepEqual(await wrongFrom(address, kept, 2), [403, 429]);
});

test('concurrent correct passphrases do not use up each other’s attempts', async () => {
  const address = newAddress();
  const kept = await locked();
  const statuses = await Promise.all(
    Array.from({ length: 12 }, async () => (await openFrom(address, kept, PASSPHRASE)).status),
  );
  assert.deepEqual(statuses, Array(12).fill(200));
});

test('mixed with correct passphrases, at most 5 wrong ones are tried', async () => {
  const address = newAddress();
  const kept = await locked();
  const answers = await Promise.all(
    Array.from({ length: 48 }, (_, index) =>
      openFrom(address, kept, index % 3 ? WRONG : PASSPHRASE, index % 2 ? base : replica),
    ),
  );
  assert.ok(answers.filter(({ status }) => status === 403).length <= 5);
  for (const { status } of answers) assert.ok([200, 403, 429].includes(status), String(status));
  // All other attempts were given back.
  const wrong = answers.filter(({ status }) => status === 403).length;
  assert.deepEqual(await wrongFrom(address, kept, 6 - wrong), FIVE_THEN_NONE.slice(wrong, 6));
});

test('requests that compare no passphrase take no attempt', async () => {
  const address = newAddress();
  const kept = await locked(1);
  assert.deepEqual(await wrongFrom(address, kept, 4), [403, 403, 403, 403]);
  const client = secretsClient(base, { 'x-forwarded-for': address });
  for (let count = 1; count <= 6; count += 1) {
    assert.equal(
      (await client.decrypt(kept.id, randomBytes(32).toString('base64url'), PASSPHRASE)).status,
      404,
    );
    assert.equal((await client.decrypt(kept.id, kept.secret)).json.error.code, 'passphrase_needed');
  }
  assert.equal((await openFrom(address, kept, PASSPHRASE)).json.password, TEXT);
  for (let count = 1; count <= 6; count += 1) {
    assertStatus(await openFrom(address, kept, WRONG), 404, 'a secret that has ended is not tried');
  }
});

test('the throttle table does not disclose ids or networks', async () => {
  const kept = await locked();
  await wrongFrom('203.0.113.77', kept, 1);
  const rows = await sql<
    Array<{ key: Buffer; text: string }>
  >`select key, t::text as text from secrets.throttles t`;
  assert.equal(rows.length, 2);
  for (const { key, text } of rows) {
    assert.equal(key.length, 32);
    for (const mark of [
      '203.0.113',
      Buffer.from('203.0.113').toString('hex'),
      kept.id,
      kept.id.replaceAll('-', ''),
    ]) {
      assert.ok(!text.includes(mark));
    }
  }
});

/**
 * Passphrases share the hashing limiter with logins: overload is rejected at once, and other
 * requests are served.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { beforeEach, test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { type Answer, ask, AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import { until } from '../../support/until.ts';

const TEXT = 'marked-password-text';
const PASSPHRASE = 'the right passphrase';

const { url, hashed, holdHashes, sql } = await launch(['identity', 'secrets'], {
  PASSWORD_HASHES: '1',
});
const { encrypt, keep, decrypt, receipt, list, options } = secretsClient(url.secrets);

async function hashes(): Promise<{ running: number; waiting: number }> {
  const { text } = await ask('GET', `${url.metrics}/metrics`);
  const value = (name: string) =>
    Number(
      new RegExp(`^gatehouse_password_hashes_${name} (\\d+)$`, 'm').exec(text)?.[1] ?? Number.NaN,
    );
  return { running: value('running'), waiting: value('waiting') };
}

const untilWaiting = (count: number) =>
  untilSql(async () => (await hashes()).waiting === count, `${count} wait for a hash`);

/** Many requests at once. */
const send = (count: number, one: (number: number) => Promise<Answer>) =>
  Array.from({ length: count }, (_, number) => one(number));

// A different account each, so that none is throttled.
const logIn = (number: number) =>
  ask('POST', `${url.identity}/api/auth/login`, {
    body: { username: `nobody-${number}`, password: 'whatever it is' },
  });
const lock = () => encrypt({ password: TEXT, passphrase: PASSPHRASE });

function assertOverloaded(answer: Answer): void {
  assert.deepEqual([answer.status, answer.json.error.code], [503, 'overloaded'], answer.text);
  assert.match(answer.headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
}

beforeEach(async () => {
  await sql`truncate secrets.secrets, secrets.throttles`;
  assert.deepEqual(await hashes(), { running: 0, waiting: 0 });
});

test('logins and passphrases take turns: a flood of either delays the other by its own number', async () => {
  const kept = await keep(TEXT, { passphrase: PASSPHRASE });
  const before = hashed().length;
  const release = holdHashes();
  const locks = send(30, (number) =>
    number === 0 ? decrypt(kept.id, kept.secret, PASSPHRASE) : lock(),
  );
  await untilWaiting(29);
  const logins = send(5, logIn);
  await untilWaiting(34);
  release();
  for (const { status } of await Promise.all(logins)) assert.equal(status, 401);
  await Promise.all(locks);
  const order = hashed().slice(before);
  // The first one was running before.
  const turns = Array.from({ length: 5 }, () => ['identity', 'secrets']).flat();
  assert.deepEqual(order.slice(1, 11), turns);
  assert.deepEqual(new Set(order.slice(11)), new Set(['secrets']));
});

test('encrypt: 503 with Retry-After while the hashing queue is full', async () => {
  const release = holdHashes();
  const logins = send(11, logIn);
  await untilWaiting(10);
  // 32 may wait, apart from logins, which have a queue of their own.
  let answered = 0;
  const locks = send(60, () =>
    lock().finally(() => {
      answered += 1;
    }),
  );
  await until(() => answered === 60 - 32, 'all others are refused');
  release();
  const refused = (await Promise.all(locks)).filter(({ status }) => status !== 201);
  for (const answer of refused) assertOverloaded(answer);
  assert.equal(refused.length, 60 - 32);
  for (const { status } of await Promise.all(logins)) assert.equal(status, 401);
  const [row] = await sql`select count(*)::int as rows from secrets.secrets`;
  assert.equal(row?.rows, 32);
});

test('requests that need no hash are answered while all hashes wait', async () => {
  const free = await keep(TEXT);
  const locked = await keep(TEXT, { passphrase: PASSPHRASE });
  const release = holdHashes();
  const locks = send(30, lock);
  await untilWaiting(29);
  const made = await encrypt({ password: 'made meanwhile' });
  const expected: ReadonlyArray<readonly [answer: Answer, status: number]> = [
    [made, 201],
    [await decrypt(free.id, free.secret), 200],
    [await receipt(free.id), 200],
    [await list('?limit=1'), 200],
    [await options(), 200],
    [await ask('DELETE', `${url.secrets}/api/store/${free.id}`, { bearer: AUTH_TOKEN }), 200],
    [await ask('GET', `${url.secrets}/readyz`), 200],
    // A wrong key, and a missing passphrase.
    [await decrypt(locked.id, randomBytes(32).toString('base64url'), PASSPHRASE), 404],
    [await decrypt(locked.id, 'no key', PASSPHRASE), 404],
    [await decrypt(locked.id, locked.secret), 403],
  ];
  for (const [answer, status] of expected) assert.equal(answer.status, status, answer.text);
  release();
  await Promise.all(locks);
});

test('the lifetime begins after the passphrase was hashed', async () => {
  const release = holdHashes();
  const locks = send(20, () =>
    encrypt({ password: TEXT, passphrase: PASSPHRASE, expires_in: 600 }),
  );
  await untilWaiting(19);
  const [clock] = await sql`select clock_timestamp() + interval '600 seconds' as ends`;
  release();
  await Promise.all(locks);
  const [row] = await sql`
    select count(*)::int as aged from secrets.secrets where expires_at < ${clock?.ends}`;
  assert.equal(row?.aged, 0);
});

test('decrypt: 503 while the hashing queue is full, not counted as an attempt', async () => {
  const kept = await keep(TEXT, { passphrase: PASSPHRASE, max_reads: 1 });
  const stored = async () => [
    ...(await sql`select * from secrets.secrets where id = ${kept.id}`),
    ...(await sql`select * from secrets.throttles where attempts > 0`),
  ];
  const before = await stored();
  const release = holdHashes();
  const locks = send(33, lock);
  await untilWaiting(32);
  for (const passphrase of ['a wrong passphrase', PASSPHRASE])
    assertOverloaded(await decrypt(kept.id, kept.secret, passphrase));
  release();
  await Promise.all(locks);
  assert.deepEqual(await stored(), before);
  assert.equal((await decrypt(kept.id, kept.secret, PASSPHRASE)).json.password, TEXT);
});

/**
 * Passphrases share the hashing limiter with logins: overload is rejected at once, and other
 * requests are served.
 */
import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { type Answer, ask, launch } from '../../support/gatehouse.ts';
import { secretsClient, storedSecret, wrongKey } from '../../support/secrets.ts';
import { until } from '../../support/until.ts';

const password = 'marked-password-text';
const passphrase = 'the right passphrase';

const one = { PASSWORD_HASHES: '1' };
const { url, holdHashes, sql } = await launch(['identity', 'secrets'], one);
const { encrypt, keep, decrypt, receipt, list, options, remove } = secretsClient(url.secrets);

async function hashes(): Promise<string> {
  const { text } = await ask('GET', `${url.metrics}/metrics`);
  const found = text.matchAll(/^gatehouse_password_hashes_(running|waiting) (\d+)$/gm);
  return [...found].map(([, name, count]) => `${name} ${count}`).join();
}
const untilWaiting = (count: number) =>
  untilSql(
    async () => (await hashes()).split(',').includes(`waiting ${count}`),
    `${count} wait for a hash`,
  );

/** Many requests at once. */
const send = (count: number, request: (number: number) => Promise<Answer>) =>
  Array.from({ length: count }, (_, number) => request(number));
// A different account each, so that none is throttled.
const logIn = (number: number) =>
  ask('POST', `${url.identity}/api/auth/login`, {
    body: { username: `nobody-${number}`, password: 'whatever it is' },
  });
const lock = () => encrypt({ password, passphrase });

function assertOverloaded({ status, json, headers, text }: Answer): void {
  assert.deepEqual([status, json.error.code], [503, 'overloaded'], text);
  assert.match(headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
}

beforeEach(async () => {
  await sql`truncate secrets.secrets, secrets.throttles`;
  assert.doesNotMatch(await hashes(), /[1-9]/);
});

test('encrypt: 503 with Retry-After while the hashing queue is full', async () => {
  const release = holdHashes();
  const logins = send(11, logIn);
  await untilWaiting(10);
  // 32 may wait, apart from logins, which have a queue of their own.
  let answered = 0;
  const locks = send(40, () =>
    lock().finally(() => {
      answered += 1;
    }),
  );
  await until(() => answered === 40 - 32, 'all others are refused');
  release();
  const refused = (await Promise.all(locks)).filter(({ status }) => status !== 201);
  assert.equal(refused.length, 40 - 32);
  for (const answer of refused) assertOverloaded(answer);
  for (const { status } of await Promise.all(logins)) assert.equal(status, 401);
  assert.equal((await sql`select from secrets.secrets`).length, 32);
});

test('requests that need no hash are answered while all hashes wait', async () => {
  const free = await keep(password);
  const locked = await keep(password, { passphrase });
  const release = holdHashes();
  const locks = send(3, lock);
  await untilWaiting(2);
  for (const [answer, status] of [
    [await encrypt({ password: 'made meanwhile' }), 201],
    [await decrypt(free.id, free.secret), 200],
    [await receipt(free.id), 200],
    [await list('?limit=1'), 200],
    [await options(), 200],
    [await remove(free.id), 200],
    // A wrong key, and a missing passphrase.
    [await decrypt(locked.id, wrongKey(), passphrase), 404],
    [await decrypt(locked.id, 'no key', passphrase), 404],
    [await decrypt(locked.id, locked.secret), 403],
  ] as const)
    assert.equal(answer.status, status, answer.text);
  release();
  await Promise.all(locks);
});

test('the lifetime begins after the passphrase was hashed', async () => {
  const release = holdHashes();
  const locks = send(5, () => encrypt({ password, passphrase, expires_in: 600 }));
  await untilWaiting(4);
  const [clock] = await sql`select clock_timestamp() + interval '600 seconds' as ends`;
  release();
  await Promise.all(locks);
  const early = await sql`select from secrets.secrets where expires_at < ${clock?.ends}`;
  assert.equal(early.length, 0);
});

test('decrypt: 503 while the hashing queue is full, not counted as an attempt', async () => {
  const { id, secret } = await keep(password, { passphrase, max_reads: 1 });
  const stored = async () => [
    await storedSecret(sql, id),
    ...(await sql`select * from secrets.throttles where attempts > 0`),
  ];
  const before = await stored();
  const release = holdHashes();
  const locks = send(33, lock);
  await untilWaiting(32);
  for (const typed of ['a wrong passphrase', passphrase])
    assertOverloaded(await decrypt(id, secret, typed));
  release();
  await Promise.all(locks);
  assert.deepEqual(await stored(), before);
  assert.equal((await decrypt(id, secret, passphrase)).json.password, password);
});

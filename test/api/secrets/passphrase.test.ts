/**
 * Secrets that require a passphrase in addition to the key, and the limits on wrong ones: per
 * secret and network, and per secret. Passphrases share the hashing limiter with logins: overload
 * is rejected at once, and other requests are served.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { type Answer, ask, launch, startGatehouse } from '../../support/gatehouse.ts';
import { BEHIND_PROXY, newAddress } from '../../support/logins.ts';
import { secretsClient, storedSecret, wrongKey } from '../../support/secrets.ts';
import { until } from '../../support/until.ts';

const TEXT = 'marked-password-text';
const PASSPHRASE = 'marked passphrase';
const WRONG = 'not the passphrase';

const services = ['identity', 'secrets'] as const;
const {
  sql,
  databaseUrl,
  secrets: base,
  ...gatehouse
} = await launch(services, { ...BEHIND_PROXY, PASSWORD_HASHES: '1' });
const { encrypt, keep, decrypt, receipt, list, options, remove } = secretsClient(base);
const other = await startGatehouse({ after }, ['secrets'], databaseUrl, BEHIND_PROXY);
const REPLICAS = [base, other.url.secrets] as const;

beforeEach(async () => {
  await sql`truncate secrets.secrets, secrets.throttles`;
  assert.doesNotMatch(await hashes(), /[1-9]/);
});

const attempts = async () =>
  Number((await sql`select coalesce(sum(attempts), 0) as sum from secrets.throttles`)[0]?.sum);
async function summary(id: string): Promise<unknown[]> {
  const { status, reads, failed_reads } = (await receipt(id)).json;
  return [status, reads, failed_reads];
}
function assertRefused({ status, json, text }: Answer, code: string): void {
  assert.deepEqual([status, json.error.code], [code === 'not_found' ? 404 : 403, code], text);
  assert.ok(!text.includes('marked'));
}
const locked = (max_reads?: number) =>
  keep(TEXT, { passphrase: PASSPHRASE, ...(max_reads === undefined ? {} : { max_reads }) });
type Kept = Awaited<ReturnType<typeof keep>>;
/** Many requests at once. */
const send = (count: number, request: (number: number) => Promise<Answer>) =>
  Array.from({ length: count }, (_, number) => request(number));

test('a secret opens with key and passphrase; a missing or wrong one is 403 and uses nothing up', async () => {
  const { id, secret } = await locked(1);
  const before = await storedSecret(sql, id);
  for (let count = 0; count < 8; count += 1)
    assertRefused(await decrypt(id, secret), 'passphrase_needed');
  assert.deepEqual([await storedSecret(sql, id), await attempts()], [before, 0]);
  for (const passphrase of ['Marked passphrase', 'marked passphrase ', 'marked'])
    assertRefused(await decrypt(id, secret, passphrase), 'wrong_passphrase');
  assert.deepEqual(await storedSecret(sql, id), { ...before, failed_reads: '3' });
  assert.equal((await decrypt(id, secret, PASSPHRASE)).text, `{"password":"${TEXT}"}`);
  assert.deepEqual(await summary(id), ['read', 1, 3]);
  const free = await keep(TEXT);
  const ignored = await decrypt(free.id, free.secret, PASSPHRASE);
  assert.equal(ignored.json.password, TEXT, 'one that is not needed is ignored');
});

test('a wrong key does not disclose whether there is a passphrase', async () => {
  const kept = await locked();
  const free = await keep(TEXT);
  for (const key of [wrongKey(), 'no key at all']) {
    const texts = new Set<string>();
    for (const id of [kept.id, free.id, randomUUID()]) {
      for (const passphrase of [undefined, PASSPHRASE]) {
        const answer = await decrypt(id, key, passphrase);
        assertRefused(answer, 'not_found');
        texts.add(answer.text);
      }
    }
    assert.equal(texts.size, 1);
  }
  assert.equal(await attempts(), 0);
  assert.equal((await decrypt(kept.id, kept.secret, PASSPHRASE)).status, 200);
});

test('no passphrase, id or network is stored in another form', async () => {
  const kept = await locked();
  for (const passphrase of ['marked and wrong', PASSPHRASE])
    await openFrom('203.0.113.77', kept, passphrase);
  const formsOf = (text: string) => [text, Buffer.from(text).toString('hex')];
  for (const [table, marks] of [
    ['secrets', ['marked']],
    ['throttles', ['marked', '203.0.113', kept.id, kept.id.replaceAll('-', '')]],
  ] as const) {
    const rows = await sql`select to_jsonb(t)::text as text from secrets.${sql(table)} t`;
    const text = rows.map((row) => row.text).join();
    assert.ok(text.length > 0);
    for (const mark of marks.flatMap(formsOf)) assert.ok(!text.includes(mark), `${table}: ${mark}`);
  }
});

// --- Limits

const openFrom = (
  address: string,
  { id, secret }: Pick<Kept, 'id' | 'secret'>,
  passphrase: string,
  replica = 0,
): Promise<Answer> =>
  secretsClient(REPLICAS[replica % 2] ?? base, { 'x-forwarded-for': address }).decrypt(
    id,
    secret,
    passphrase,
  );

/** One attempt after the other, on both replicas in turn. @returns the status of each */
async function wrongFrom(address: string, kept: Kept, count: number): Promise<number[]> {
  const statuses: number[] = [];
  for (let index = 0; index < count; index += 1)
    statuses.push((await openFrom(address, kept, WRONG, index)).status);
  return statuses;
}

/** Moves all attempts into the past. */
const passTime = (seconds: number) => sql`
  update secrets.throttles set window_ends_at = window_ends_at - make_interval(secs => ${seconds}),
    blocked_until = blocked_until - make_interval(secs => ${seconds})`;

const QUARTER = 15 * 60;
const DAY = 86_400;
function assertThrottled({ status, json, headers, text }: Answer, atMost: number): void {
  assert.deepEqual([status, json.error.code], [429, 'too_many_requests'], text);
  const seconds = Number(headers.get('retry-after'));
  assert.ok(seconds > atMost - 240 && seconds <= atMost, `${seconds} of at most ${atMost} s`);
}

const FIVE_THEN_NONE = [403, 403, 403, 403, 403, 429, 429];

test('after 5 wrong passphrases from one network the correct one is 429, on every replica', async () => {
  const address = '2001:db8:1:2::1';
  const kept = await locked(1);
  assert.deepEqual(await wrongFrom(address, kept, 7), FIVE_THEN_NONE);
  const wrong = await openFrom(address, kept, WRONG);
  const right = await openFrom('2001:db8:1:2:ffff::2', kept, PASSPHRASE);
  for (const answer of [wrong, right]) assertThrottled(answer, QUARTER);
  assert.equal(wrong.text, right.text);
  assert.deepEqual(await summary(kept.id), ['stored', 0, 5]);
  // Other secrets and other networks are not affected.
  assert.equal((await openFrom(address, await locked(), PASSPHRASE)).json.password, TEXT);
  assert.equal((await openFrom('2001:db8:1:3::1', kept, PASSPHRASE)).json.password, TEXT);
});

test('after 30 wrong passphrases from many networks a secret is blocked for a day', async () => {
  const kept = await locked(1);
  for (let count = 0; count < 30; count += 1)
    assert.equal((await openFrom(newAddress(), kept, WRONG, count)).status, 403, String(count));
  const late = newAddress();
  for (const address of [late, late, newAddress()])
    assertThrottled(await openFrom(address, kept, PASSPHRASE), DAY);
  assert.deepEqual(await summary(kept.id), ['stored', 0, 30]);
  assert.equal(await attempts(), 2 * 30, 'what is rejected is no attempt of its network');
  assert.equal((await openFrom(late, await locked(), PASSPHRASE)).status, 200);
  await passTime(DAY - 300);
  assertThrottled(await openFrom(late, kept, PASSPHRASE), 300);
  await passTime(300);
  assert.equal((await openFrom(late, kept, PASSPHRASE)).json.password, TEXT);
});

test('correct passphrases sent together give their attempts back, and do not clear wrong ones', async () => {
  const address = newAddress();
  const kept = await locked();
  assert.deepEqual(await wrongFrom(address, kept, 4), [403, 403, 403, 403]);
  const opened = send(31, () => openFrom(address, kept, PASSPHRASE));
  for (const { status } of await Promise.all(opened)) assert.equal(status, 200);
  assert.deepEqual(await wrongFrom(address, kept, 2), [403, 429]);
});

test('an attempt that cannot be given back counts, and the secret opens all the same', async (t) => {
  const { id, secret } = await locked(1);
  await sql`alter table secrets.throttles add constraint kept check (attempts > 0)`;
  t.after(() => sql`alter table secrets.throttles drop constraint kept`);
  assert.equal((await decrypt(id, secret, PASSPHRASE)).json.password, TEXT);
  assert.equal(await attempts(), 2);
});

// --- Overload

async function hashes(): Promise<string> {
  const { text } = await ask('GET', `${gatehouse.metrics}/metrics`);
  const found = text.matchAll(/^gatehouse_password_hashes_(running|waiting) (\d+)$/gm);
  return [...found].map(([, name, count]) => `${name} ${count}`).join();
}
const untilWaiting = (count: number) =>
  untilSql(
    async () => (await hashes()).split(',').includes(`waiting ${count}`),
    `${count} wait for a hash`,
  );

// A different account each, so that none is throttled.
const logIn = (number: number) =>
  ask('POST', `${gatehouse.identity}/api/auth/login`, {
    body: { username: `nobody-${number}`, password: 'whatever it is' },
  });
function assertOverloaded({ status, json, headers, text }: Answer): void {
  assert.deepEqual([status, json.error.code], [503, 'overloaded'], text);
  assert.match(headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
}

test('while the queue of hashes is full: 503 for what needs one, and no attempt is counted', async () => {
  const { id, secret } = await locked(1);
  const free = await keep(TEXT);
  const release = gatehouse.holdHashes();
  const logins = send(11, logIn);
  await untilWaiting(10);
  // 32 may wait, apart from logins, which have a queue of their own.
  let answered = 0;
  const locks = send(40, () =>
    encrypt({ password: TEXT, passphrase: PASSPHRASE, expires_in: 600 }).finally(() => {
      answered += 1;
    }),
  );
  await until(() => answered === 40 - 32, 'all others are refused');
  for (const typed of [WRONG, PASSPHRASE]) assertOverloaded(await decrypt(id, secret, typed));
  for (const [answer, status] of [
    [await encrypt({ password: 'made meanwhile' }), 201],
    [await decrypt(free.id, free.secret), 200],
    [await receipt(free.id), 200],
    [await list('?limit=1'), 200],
    [await options(), 200],
    [await remove(free.id), 200],
    // A wrong key, and a missing passphrase.
    [await decrypt(id, wrongKey(), PASSPHRASE), 404],
    [await decrypt(id, 'no key', PASSPHRASE), 404],
    [await decrypt(id, secret), 403],
  ] as const)
    assert.equal(answer.status, status, answer.text);
  const [clock] = await sql`select clock_timestamp() + interval '600 seconds' as ends`;
  release();
  const refused = (await Promise.all(locks)).filter(({ status }) => status !== 201);
  assert.equal(refused.length, 40 - 32);
  for (const answer of refused) assertOverloaded(answer);
  for (const { status } of await Promise.all(logins)) assert.equal(status, 401);
  const late = await sql`select from secrets.secrets
    where expires_at between ${clock?.ends} and now() + interval '1 day'`;
  assert.equal(late.length, 32, 'the lifetime begins after the passphrase was hashed');
  assert.deepEqual([await summary(id), await attempts()], [['stored', 0, 2], 0]);
  assert.equal((await decrypt(id, secret, PASSPHRASE)).json.password, TEXT);
});

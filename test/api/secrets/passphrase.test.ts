/**
 * Secrets that require a passphrase in addition to the key, and the limits on wrong ones: per
 * secret and network, and per secret.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import { type Answer, launch, startGatehouse } from '../../support/gatehouse.ts';
import { BEHIND_PROXY, newAddress } from '../../support/logins.ts';
import { secretsClient, storedSecret, wrongKey } from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const PASSPHRASE = 'marked passphrase';
const WRONG = 'not the passphrase';

const { sql, databaseUrl, secrets: base, ...gatehouse } = await launch(['secrets'], BEHIND_PROXY);
const { encrypt, keep, decrypt, receipt } = secretsClient(base);
const { url } = await startGatehouse({ after }, ['secrets'], databaseUrl, BEHIND_PROXY);
const REPLICAS = [base, url.secrets] as const;

beforeEach(async () => {
  await sql`delete from secrets.throttles`;
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

test('a secret with a passphrase opens with key and passphrase', async () => {
  const { status, json } = await encrypt({ password: TEXT, passphrase: PASSPHRASE, max_reads: 1 });
  assert.deepEqual([status, Object.keys(json)], [201, ['id', 'secret', 'expires_at']]);
  assert.equal((await decrypt(json.id, json.secret, PASSPHRASE)).text, `{"password":"${TEXT}"}`);
  assert.deepEqual(await summary(json.id), ['read', 1, 0]);
  assert.equal((await decrypt(json.id, json.secret, PASSPHRASE)).status, 404);
  const free = await keep(TEXT);
  const ignored = await decrypt(free.id, free.secret, PASSPHRASE);
  assert.equal(ignored.json.password, TEXT, 'one that is not needed is ignored');
});

test('a missing passphrase is 403, any number of times, and counts as no attempt', async () => {
  const { id, secret } = await locked(1);
  const before = await storedSecret(sql, id);
  for (let count = 0; count < 8; count += 1)
    assertRefused(await decrypt(id, secret), 'passphrase_needed');
  assert.deepEqual([await storedSecret(sql, id), await attempts()], [before, 0]);
  assert.equal((await decrypt(id, secret, PASSPHRASE)).json.password, TEXT);
});

test('a wrong passphrase is 403, uses nothing up and counts as a failed read', async () => {
  const { id, secret } = await locked(1);
  const before = await storedSecret(sql, id);
  for (const passphrase of ['Marked passphrase', 'marked passphrase ', 'marked'])
    assertRefused(await decrypt(id, secret, passphrase), 'wrong_passphrase');
  assert.deepEqual(await storedSecret(sql, id), { ...before, failed_reads: '3' });
  assert.deepEqual(await summary(id), ['stored', 0, 3]);
  assert.equal((await decrypt(id, secret, PASSPHRASE)).json.password, TEXT);
});

test('passphrases are normalized (NFKC)', async () => {
  for (const [made, typed] of [
    ['caf\u00e9 au lait', 'cafe\u0301 au lait'],
    ['ｓｅｓａｍｅ', 'sesame'],
    ['open\u00a0con\ufb01dence', 'open confidence'],
  ] as const) {
    const { id, secret } = await keep(TEXT, { passphrase: made });
    for (const passphrase of [typed, made])
      assert.equal((await decrypt(id, secret, passphrase)).json.password, TEXT);
  }
});

test('a passphrase of 4 to 1,024 characters is accepted and compared in full', async () => {
  for (const passphrase of ['four', 'x'.repeat(1_024), '    ', 'two\nlines', '🔑🔑🔑']) {
    const { id, secret } = await keep(TEXT, { passphrase });
    const other = [...passphrase].slice(0, -1).join('') + (passphrase.endsWith('x') ? 'y' : 'x');
    assertRefused(await decrypt(id, secret, other), 'wrong_passphrase');
    assert.equal((await decrypt(id, secret, passphrase)).json.password, TEXT);
  }
});

test('a wrong key does not disclose whether there is a passphrase', async () => {
  const kept = await locked();
  const free = await keep(TEXT);
  for (const key of [wrongKey(), 'no key at all']) {
    const texts = new Set<string>();
    // From different networks, and more often than attempts are allowed.
    for (let count = 0; count < 8; count += 1) {
      const from = { 'x-forwarded-for': count % 2 ? '198.51.100.7' : newAddress() };
      for (const id of [kept.id, free.id, randomUUID()]) {
        for (const passphrase of [undefined, PASSPHRASE]) {
          const answer = await secretsClient(base, from).decrypt(id, key, passphrase);
          assertRefused(answer, 'not_found');
          texts.add(answer.text);
        }
      }
    }
    assert.equal(texts.size, 1);
  }
  assert.equal(await attempts(), 0);
  assert.equal((await decrypt(kept.id, kept.secret, PASSPHRASE)).status, 200);
});

test('receipt and row length do not disclose a passphrase or the length of a short text', async () => {
  const kept = await Promise.all(
    [1, 16, 100].map((bytes) => keep('x'.repeat(bytes), { passphrase: PASSPHRASE })),
  );
  const membersOf = async ({ id }: Kept) => Object.keys((await receipt(id)).json).join();
  const members = await Promise.all([await keep('x'), ...kept].map(membersOf));
  const rows = await Promise.all(kept.map(({ id }) => storedSecret(sql, id)));
  assert.equal(new Set(members).size, 1);
  assert.equal(new Set(rows.map(({ blob }) => blob.length)).size, 1);
});

test('no passphrase, id or network is stored in another form, or logged', async () => {
  const kept = await locked();
  for (const passphrase of ['marked and wrong', PASSPHRASE])
    await openFrom('203.0.113.77', kept, passphrase);
  const written = gatehouse.stdout() + gatehouse.stderr();
  assert.ok(!written.includes('marked') && !written.includes(kept.secret));
  const formsOf = (text: string) => [text, Buffer.from(text).toString('hex')];
  for (const [table, marks] of [
    ['secrets', ['marked']],
    ['server_keys', ['marked']],
    ['throttles', ['marked', '203.0.113', kept.id, kept.id.replaceAll('-', '')]],
  ] as const) {
    const rows = await sql`select to_jsonb(t)::text as text from secrets.${sql(table)} t`;
    assert.ok(rows.length > 0);
    for (const mark of marks.flatMap(formsOf))
      assert.ok(
        rows.every(({ text }) => !text.includes(mark)),
        `${table}: ${mark}`,
      );
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
  const address = newAddress();
  const kept = await locked(1);
  assert.deepEqual(await wrongFrom(address, kept, 7), FIVE_THEN_NONE);
  const wrong = await openFrom(address, kept, WRONG);
  const right = await openFrom(address, kept, PASSPHRASE);
  for (const answer of [wrong, right]) assertThrottled(answer, QUARTER);
  assert.equal(wrong.text, right.text);
  assert.deepEqual(await summary(kept.id), ['stored', 0, 5]);
  // Other secrets and other networks are not affected.
  assert.equal((await openFrom(address, await locked(), PASSPHRASE)).json.password, TEXT);
  assert.equal((await openFrom(newAddress(), kept, PASSPHRASE)).json.password, TEXT);
});

test('a network is an IPv6 /64 or an IPv4 address, also if mapped to IPv6', async () => {
  const kept = await locked();
  const statuses: number[] = [];
  for (const end of [':1', 'ffff::2', '0:0:0:3', 'a:b:c:d', ':', ':ffff'])
    statuses.push((await openFrom(`2001:db8:1:2:${end}`, kept, WRONG)).status);
  assert.deepEqual(statuses, FIVE_THEN_NONE.slice(0, 6));
  for (const address of ['2001:db8:1:3::1', '2001:db8::1'])
    assert.equal((await openFrom(address, kept, PASSPHRASE)).status, 200, address);
  assert.deepEqual(await wrongFrom('192.0.2.7', kept, 3), [403, 403, 403]);
  assert.deepEqual(await wrongFrom('::ffff:192.0.2.7', kept, 3), [403, 403, 429]);
  assert.equal((await openFrom('192.0.2.8', kept, PASSPHRASE)).status, 200);
});

test('after 30 wrong passphrases from many networks a secret is blocked for a day', async () => {
  const kept = await locked(1);
  for (let count = 0; count < 30; count += 1)
    assert.equal((await openFrom(newAddress(), kept, WRONG, count)).status, 403, String(count));
  const late = newAddress();
  for (const address of [late, late, newAddress()])
    assertThrottled(await openFrom(address, kept, PASSPHRASE), DAY);
  assert.deepEqual(await summary(kept.id), ['stored', 0, 30]);
  assert.equal((await openFrom(late, await locked(), PASSPHRASE)).status, 200);
  await passTime(DAY - 300);
  assertThrottled(await openFrom(late, kept, PASSPHRASE), 300);
  await passTime(300);
  assert.equal((await openFrom(late, kept, PASSPHRASE)).json.password, TEXT);
});

test('a request rejected by the daily limit takes no attempt of its network', async () => {
  const kept = await locked(1);
  for (let count = 0; count < 30; count += 1) await openFrom(newAddress(), kept, WRONG);
  const late = newAddress();
  for (let count = 0; count < 6; count += 1)
    assertThrottled(await openFrom(late, kept, PASSPHRASE), DAY);
  // Only the daily limit is reached.
  await sql`delete from secrets.throttles where attempts >= 30`;
  assert.deepEqual(await wrongFrom(late, kept, 6), FIVE_THEN_NONE.slice(0, 6));
});

test('concurrent wrong passphrases from 50 networks: 30 attempts', async () => {
  const kept = await locked(1);
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, index) => openFrom(newAddress(), kept, WRONG, index)),
  );
  const statuses = answers.map(({ status }) => status).sort();
  assert.deepEqual(statuses, [...Array(30).fill(403), ...Array(20).fill(429)]);
});

test('a correct passphrase gives its attempt back, and does not clear wrong ones', async () => {
  const address = newAddress();
  const kept = await locked();
  assert.deepEqual(await wrongFrom(address, kept, 4), [403, 403, 403, 403]);
  for (let count = 1; count <= 31; count += 1)
    assert.equal((await openFrom(address, kept, PASSPHRASE)).status, 200, `read ${count}`);
  assert.deepEqual(await wrongFrom(address, kept, 2), [403, 429]);
});

test('concurrent correct passphrases do not use up each other’s attempts', async () => {
  const address = newAddress();
  const kept = await locked();
  const opened = Array.from({ length: 12 }, () => openFrom(address, kept, PASSPHRASE));
  for (const { status } of await Promise.all(opened)) assert.equal(status, 200);
});

test('mixed with correct passphrases, at most 5 wrong ones are tried', async () => {
  const address = newAddress();
  const kept = await locked();
  const answers = await Promise.all(
    Array.from({ length: 48 }, (_, index) =>
      openFrom(address, kept, index % 3 ? WRONG : PASSPHRASE, index),
    ),
  );
  for (const { status } of answers) assert.ok([200, 403, 429].includes(status), String(status));
  const wrong = answers.filter(({ status }) => status === 403).length;
  assert.ok(wrong <= 5);
  // All other attempts were given back.
  assert.deepEqual(await wrongFrom(address, kept, 6 - wrong), FIVE_THEN_NONE.slice(wrong, 6));
});

test('requests that compare no passphrase take no attempt', async () => {
  const address = newAddress();
  const kept = await locked(1);
  assert.deepEqual(await wrongFrom(address, kept, 4), [403, 403, 403, 403]);
  const { decrypt: open } = secretsClient(base, { 'x-forwarded-for': address });
  for (let count = 0; count < 6; count += 1) {
    assertRefused(await open(kept.id, wrongKey(), PASSPHRASE), 'not_found');
    assertRefused(await open(kept.id, kept.secret), 'passphrase_needed');
  }
  assert.equal((await openFrom(address, kept, PASSPHRASE)).json.password, TEXT);
  // A secret that has ended is not tried.
  assert.deepEqual(await wrongFrom(address, kept, 6), Array(6).fill(404));
});

/**
 * Secrets that require a passphrase in addition to the key, and the limits on wrong ones: per
 * secret and network, and per secret.
 */
import assert from 'node:assert/strict';
import { randomUUID, randomBytes } from 'node:crypto';
import { test, after, beforeEach } from 'node:test';
import { type Answer, launch, startGatehouse, assertStatus } from '../../support/gatehouse.ts';
import { secretsClient, storedSecret, wrongKey } from '../../support/secrets.ts';
import { BEHIND_PROXY, newAddress } from '../../support/logins.ts';

const TEXT = 'marked-password-text';
const PASSPHRASE = 'marked passphrase';

const gatehouse = await launch(['secrets'], BEHIND_PROXY);
const { sql, databaseUrl } = gatehouse;
const base = gatehouse.url.secrets;
const { encrypt, keep, decrypt, receipt } = secretsClient(base);

const attempts = async () =>
  Number((await sql`select coalesce(sum(attempts), 0) as sum from secrets.throttles`)[0]?.sum);

async function summary(id: string): Promise<unknown[]> {
  const { status, reads, failed_reads } = (await receipt(id)).json;
  return [status, reads, failed_reads];
}

function assertRefused(answer: Answer, status: number, code: string): void {
  assert.deepEqual([answer.status, answer.json.error.code], [status, code], answer.text);
  assert.ok(!answer.text.includes('marked'));
}

const replica = (await startGatehouse({ after }, ['secrets'], databaseUrl, BEHIND_PROXY)).url
  .secrets;

test('a secret with a passphrase opens with key and passphrase', async () => {
  const made = await encrypt({ password: TEXT, passphrase: PASSPHRASE, max_reads: 1 });
  assert.equal(made.status, 201);
  assert.deepEqual(Object.keys(made.json), ['id', 'secret', 'expires_at']);
  assert.match(made.json.secret, /^[A-Za-z0-9_-]{43}$/);
  const answer = await decrypt(made.json.id, made.json.secret, PASSPHRASE);
  assert.deepEqual([answer.status, answer.text], [200, `{"password":"${TEXT}"}`]);
  assert.deepEqual(await summary(made.json.id), ['read', 1, 0]);
  assert.equal((await decrypt(made.json.id, made.json.secret, PASSPHRASE)).status, 404);
});

test('a missing passphrase is 403, any number of times, and counts as no attempt', async () => {
  const { id, secret } = await keep(TEXT, { passphrase: PASSPHRASE, max_reads: 1 });
  const before = await storedSecret(sql, id);
  const attemptsBefore = await attempts();
  for (let count = 0; count < 8; count += 1) {
    const answer = await decrypt(id, secret);
    assertRefused(answer, 403, 'passphrase_needed');
    assert.match(answer.json.error.message, /passphrase/);
  }
  assert.deepEqual(await storedSecret(sql, id), before);
  assert.equal(await attempts(), attemptsBefore);
  assert.equal((await decrypt(id, secret, PASSPHRASE)).json.password, TEXT);
});

test('a wrong passphrase is 403, uses nothing up and counts as a failed read', async () => {
  const { id, secret } = await keep(TEXT, { passphrase: PASSPHRASE, max_reads: 1 });
  const before = await storedSecret(sql, id);
  const near = ['Marked passphrase', 'marked passphrase ', 'marked-passphrase', 'marked'];
  for (const passphrase of near)
    assertRefused(await decrypt(id, secret, passphrase), 403, 'wrong_passphrase');
  assert.deepEqual(await storedSecret(sql, id), { ...before, failed_reads: String(near.length) });
  assert.deepEqual(await summary(id), ['stored', 0, near.length]);
  assert.equal((await decrypt(id, secret, PASSPHRASE)).json.password, TEXT);
});

test('a passphrase for a secret without one is ignored', async () => {
  const { id, secret } = await keep(TEXT);
  assert.equal((await decrypt(id, secret, PASSPHRASE)).json.password, TEXT);
  assert.deepEqual(await summary(id), ['stored', 1, 0]);
});

const SPELLINGS: ReadonlyArray<readonly [what: string, made: string, typed: string]> = [
  ['composed and decomposed', 'caf\u00e9 au lait', 'cafe\u0301 au lait'],
  ['decomposed and composed', 'A\u030angstro\u0308m', '\u00c5ngstr\u00f6m'],
  ['full width and plain', 'ｓｅｓａｍｅ', 'sesame'],
  ['a ligature and its letters', 'con\ufb01dence', 'confidence'],
  ['a no-break space and a space', 'open\u00a0sesame', 'open sesame'],
];
for (const [what, made, typed] of SPELLINGS) {
  test(`passphrases are normalized (NFKC): ${what}`, async () => {
    const { id, secret } = await keep(TEXT, { passphrase: made });
    for (const passphrase of [typed, made])
      assert.equal((await decrypt(id, secret, passphrase)).json.password, TEXT);
  });
}

for (const [what, passphrase] of [
  ['4 characters', 'four'],
  ['1024 characters', 'x'.repeat(1_024)],
  ['spaces alone', '    '],
  ['a line break in it', 'two\nlines'],
  ['emoji', '🔑🔑🔑'],
] as const) {
  test(`a passphrase with ${what} is accepted and compared in full`, async () => {
    const { id, secret } = await keep(TEXT, { passphrase });
    const other = [...passphrase].slice(0, -1).join('') + (passphrase.endsWith('x') ? 'y' : 'x');
    assertRefused(await decrypt(id, secret, other), 403, 'wrong_passphrase');
    assert.equal((await decrypt(id, secret, passphrase)).json.password, TEXT);
  });
}

test('a wrong key does not disclose whether there is a passphrase', async () => {
  const before = await attempts();
  const locked = await keep(TEXT, { passphrase: PASSPHRASE });
  const free = await keep(TEXT);
  for (const key of [wrongKey(), 'no key at all']) {
    const texts = new Set<string>();
    // From different networks, and more often than attempts are allowed.
    for (let count = 0; count < 8; count += 1) {
      for (const id of [locked.id, free.id, randomUUID()]) {
        for (const passphrase of [undefined, PASSPHRASE, 'another one']) {
          const answer = await secretsClient(base, {
            'x-forwarded-for': count % 2 ? '198.51.100.7' : newAddress(),
          }).decrypt(id, key, passphrase);
          assertRefused(answer, 404, 'not_found');
          texts.add(answer.text);
        }
      }
    }
    assert.equal(texts.size, 1, [...texts].join('\n'));
  }
  assert.equal(await attempts(), before);
  assert.equal((await decrypt(locked.id, locked.secret, PASSPHRASE)).status, 200);
});

test('receipt and row length do not disclose a passphrase or the length of a short text', async () => {
  const locked = await Promise.all(
    [1, 16, 100].map((bytes) => keep('x'.repeat(bytes), { passphrase: PASSPHRASE })),
  );
  const free = await keep('x');
  const receipts = await Promise.all(
    [free, ...locked].map(async ({ id }) => Object.keys((await receipt(id)).json).join()),
  );
  assert.equal(new Set(receipts).size, 1);
  const lengths = await Promise.all(
    locked.map(async ({ id }) => (await storedSecret(sql, id)).blob.length),
  );
  assert.equal(new Set(lengths).size, 1);
});

test('no passphrase is stored or logged', async () => {
  const { id, secret } = await keep(TEXT, { passphrase: PASSPHRASE });
  await decrypt(id, secret, 'marked and wrong');
  await decrypt(id, secret, PASSPHRASE);
  const written = gatehouse.stdout() + gatehouse.stderr();
  assert.ok(!written.includes('marked') && !written.includes(secret));
  for (const table of ['secrets', 'throttles', 'server_keys']) {
    for (const {
      text,
    } of await sql`select to_jsonb(t)::text as text from secrets.${sql(table)} t`) {
      for (const mark of ['marked', Buffer.from('marked').toString('hex')])
        assert.ok(!text.includes(mark), table);
    }
  }
});

interface Kept {
  readonly id: string;
  readonly secret: string;
}

const WRONG = 'not the passphrase';

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
    seconds > atMost - 240 && seconds <= atMost,
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
  await passTime(DAY - 300);
  assertThrottled(await openFrom(late, kept, PASSPHRASE), 300);
  await passTime(300);
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

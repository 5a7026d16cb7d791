/** Secrets that require a passphrase in addition to the key. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { type Answer, launch } from '../../support/gatehouse.ts';
import { secretsClient, storedSecret, wrongKey } from '../../support/secrets.ts';
import { BEHIND_PROXY, newAddress } from '../../support/logins.ts';

const TEXT = 'marked-password-text';
const PASSPHRASE = 'marked passphrase';

const gatehouse = await launch(['secrets'], BEHIND_PROXY);
const { sql } = gatehouse;
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

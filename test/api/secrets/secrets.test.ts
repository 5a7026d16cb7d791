/** Storing and opening secrets with AUTH_TOKEN. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { keepExpired } from '../../support/expired.ts';
import { ask, AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { secretsClient, storedSecret, wrongKey } from '../../support/secrets.ts';

const KIB = 1024;
const { sql, secrets: base } = await launch(['secrets']);
const { encrypt, keep, decrypt, list } = secretsClient(base);

test('encrypt: 201 with exactly id, key and expiry; another time, others', async () => {
  const { status, json } = await encrypt({ password: 'a secret' });
  assert.deepEqual([status, Object.keys(json)], [201, ['id', 'secret', 'expires_at']]);
  assert.match(json.id, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.match(json.secret, /^[A-Za-z0-9_-]{43}$/);
  assert.equal(new Date(json.expires_at).toISOString(), json.expires_at);
  const other = await keep('a secret');
  const rows = [await storedSecret(sql, json.id), await storedSecret(sql, other.id)];
  for (const values of [
    [json.secret, other.secret],
    rows.map(({ blob }) => blob.toString('hex')),
    rows.map(({ commitment }) => commitment.toString('hex')),
  ])
    assert.equal(new Set(values).size, 2);
});

test('neither a content type nor known members alone are required', async () => {
  const made = await ask('POST', `${base}/api/store/encrypt`, {
    bearer: AUTH_TOKEN,
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: { password: 'x' },
  });
  assert.equal(made.status, 201);
  const { id, secret } = made.json;
  const url = `${base}/api/store/decrypt?id=${id}`;
  const opened = await ask('POST', url, { bearer: AUTH_TOKEN, body: { secret, more: 1 } });
  assert.equal(opened.status, 200);
});

test('list: an array of id and encrypted text, without an envelope', async () => {
  const { id, secret } = await keep('plainly visible');
  const { json, text } = await list();
  const found = json.find((item: { id: string }) => item.id === id);
  const { blob } = await storedSecret(sql, id);
  assert.deepEqual(found, { id, secret: blob.toString('base64url') });
  assert.ok(!text.includes(secret) && !text.includes('plainly visible'));
});

test('encrypt: a text of more than 63 KiB in UTF-8 is 400, and not stored', async () => {
  const count = async () => (await sql`select from secrets.secrets`).length;
  const before = await count();
  for (const password of [`${'é'.repeat(31.5 * KIB)}x`, `${'😀'.repeat(15.75 * KIB)}x`]) {
    const { status, json } = await encrypt({ password });
    assert.deepEqual([status, json.error.code], [400, 'invalid_body']);
    assert.equal(json.error.fields[0].path, '/password');
  }
  assert.equal(await count(), before);
});

const TEXTS: Readonly<Record<string, string>> = {
  'a NUL character alone': '\0',
  'every ASCII character': String.fromCharCode(...Array(128).keys()),
  'combining marks, decomposed and composed': 'e\u0301 A\u030a \u1112\u1161\u11ab \u00e9 \u00c5',
  'right-to-left marks, noncharacters, and spaces around': '  \u202e\ufffe\uffff\ufeff\u{10ffff} ',
  '63 KiB in two-byte characters': 'é'.repeat(31.5 * KIB),
  '63 KiB in four-byte characters': '😀'.repeat(15.75 * KIB),
};

test('a text is returned unchanged', async () => {
  for (const [what, text] of Object.entries(TEXTS)) {
    const { id, secret } = await keep(text);
    assert.ok((await decrypt(id, secret)).json.password === text, what);
  }
});

test('decrypt: the same 404, byte by byte, for everything that does not open', async () => {
  const kept = await keep('here');
  const once = await keep('once', { max_reads: 1 });
  await decrypt(once.id, once.secret);
  const expired = await keepExpired(sql);
  const answers = [];
  for (const [id, secret] of [
    [randomUUID(), kept.secret],
    [kept.id, wrongKey()],
    [kept.id, once.secret],
    ['00000000-0000-0000-0000-000000000000', kept.secret],
    [expired.id, expired.secret],
    [expired.id, kept.secret],
    [once.id, once.secret],
    [once.id, kept.secret],
  ] as const)
    answers.push(await decrypt(id, secret));
  const forms = answers.map(({ status, text, headers }) =>
    [status, text, ...headers.keys()].join(),
  );
  assert.equal(new Set(forms).size, 1);
  assert.deepEqual([answers[0]?.status, answers[0]?.json.error.code], [404, 'not_found']);
  assert.equal((await decrypt(kept.id, kept.secret)).status, 200);
});

/** 43 characters hold 258 bits: the last two are padding, which a lenient decoder ignores. */
function respelt(secret: string): string {
  const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  const other = secret.slice(0, -1) + digits[digits.indexOf(secret.slice(-1)) + 1];
  assert.deepEqual(Buffer.from(other, 'base64url'), Buffer.from(secret, 'base64url'));
  return other;
}

test('decrypt: a malformed key is 404, with a message that describes a key', async () => {
  const { id, secret } = await keep('here');
  const key = Buffer.from(secret, 'base64url');
  for (const wrong of [
    ...[key.toString('hex'), key.toString('base64'), `${secret}=`, ` ${secret}`, `${secret}\n`],
    ...[key.subarray(0, 31).toString('base64url'), `${secret}AA`, respelt(secret), '\0😀'],
  ]) {
    const { status, json } = await decrypt(id, wrong);
    assert.deepEqual([status, json.error.code], [404, 'not_found'], wrong);
    assert.match(json.error.message, /43 characters/);
  }
  assert.equal((await decrypt(id, secret)).status, 200);
});

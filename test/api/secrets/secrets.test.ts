import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, AUTH_TOKEN, launch, assertStatus } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const ENCRYPT = '/api/store/encrypt';
const DECRYPT = '/api/store/decrypt';
const KIB = 1024;

const gatehouse = await launch(['secrets']);
const base = gatehouse.url.secrets;
const { encrypt, keep, decrypt, list } = secretsClient(base);

const countRows = async () =>
  Number((await gatehouse.sql`select count(*) from secrets.secrets`)[0]?.count);

test('encrypt: 201 with exactly id, key and expiry', async () => {
  const { status, json, headers } = await encrypt({ password: 'a secret' });
  assert.equal(status, 201);
  assert.deepEqual(Object.keys(json), ['id', 'secret', 'expires_at']);
  assert.match(json.id, UUID);
  assert.match(json.secret, /^[A-Za-z0-9_-]{43}$/);
  assert.equal(new Date(json.expires_at).toISOString(), json.expires_at);
  assert.equal(headers.get('content-type'), 'application/json; charset=utf-8');
  assert.equal(headers.get('cache-control'), 'no-store');
});

test('encrypt: the same text twice has different ids, keys and ciphertexts', async () => {
  const one = await keep('the same');
  const other = await keep('the same');
  assert.notEqual(one.id, other.id);
  assert.notEqual(one.secret, other.secret);
  const [counted] = await gatehouse.sql`
    select count(distinct blob)::int as blobs, count(distinct commitment)::int as commitments
    from secrets.secrets where id in (${one.id}, ${other.id})`;
  assert.deepEqual({ ...counted }, { blobs: 2, commitments: 2 });
});

test('decrypt: 200 with exactly the password', async () => {
  const { id, secret } = await keep('a secret');
  const answer = await decrypt(id, secret);
  assert.equal(answer.status, 200);
  assert.equal(answer.text, '{"password":"a secret"}');
  assertStatus(
    await decrypt(id.toUpperCase(), secret),
    200,
    'a UUID may be written in upper case (RFC 9562, section 4)',
  );
});

test('list: an array of id and encrypted text, without an envelope', async () => {
  const { id, secret } = await keep('plainly visible');
  const { status, json, text } = await list();
  assert.equal(status, 200);
  assert.ok(Array.isArray(json));
  const found = json.find((item) => item.id === id);
  assert.deepEqual(Object.keys(found), ['id', 'secret']);
  assert.ok(!text.includes(secret) && !text.includes('plainly visible'));
  const [row] = await gatehouse.sql`select blob from secrets.secrets where id = ${id}`;
  assert.equal(found.secret, row?.blob.toString('base64url'));
});

const CREDENTIALS: ReadonlyArray<readonly [why: string, authorization: string, admitted: boolean]> =
  [
    ['as specified', `Bearer ${AUTH_TOKEN}`, true],
    ['the scheme in lower case (RFC 9110, 11.1)', `bearer ${AUTH_TOKEN}`, true],
    ['the scheme in upper case', `BEARER ${AUTH_TOKEN}`, true],
    ['more than one space', `Bearer   ${AUTH_TOKEN}`, true],
    ['the token without the word Bearer', AUTH_TOKEN, false],
    ['no space', `Bearer${AUTH_TOKEN}`, false],
    ['another scheme', `Basic ${AUTH_TOKEN}`, false],
    ['one character less', `Bearer ${AUTH_TOKEN.slice(0, -1)}`, false],
    ['one character more', `Bearer ${AUTH_TOKEN}x`, false],
    ['one character other', `Bearer ${AUTH_TOKEN.slice(0, -1)}_`, false],
    ['the token in another case', `Bearer ${AUTH_TOKEN.toUpperCase()}`, false],
    ['the token twice', `Bearer ${AUTH_TOKEN} ${AUTH_TOKEN}`, false],
  ];
for (const [why, authorization, admitted] of CREDENTIALS) {
  test(`every operation ${admitted ? 'accepts' : 'is 401 for'} a credential with ${why}`, async () => {
    const { id, secret } = await keep('guarded');
    const before = await countRows();
    const headers = { authorization };
    const answers = [
      await ask('POST', base + ENCRYPT, { headers, body: { password: 'x' } }),
      await ask('POST', `${base}${DECRYPT}?id=${id}`, { headers, body: { secret } }),
      await ask('GET', `${base}/api/store`, { headers }),
    ];
    assert.deepEqual(
      answers.map(({ status }) => status),
      admitted ? [201, 200, 200] : [401, 401, 401],
    );
    if (!admitted) assert.equal(await countRows(), before);
  });
}

const BODY_FAULTS: ReadonlyArray<readonly [why: string, body: unknown, path: string]> = [
  ['63 KiB and one byte of ASCII', { password: 'x'.repeat(63 * KIB + 1) }, '/password'],
  [
    '63 KiB and one byte in two-byte characters',
    { password: `${'é'.repeat(31.5 * KIB)}x` },
    '/password',
  ],
  [
    '63 KiB and two bytes in four-byte characters',
    { password: `${'😀'.repeat(15.75 * KIB)}xy` },
    '/password',
  ],
];
for (const [why, body, path] of BODY_FAULTS) {
  test(`encrypt: 400 at "${path}" for ${why}`, async () => {
    const before = await countRows();
    const { status, json } = await encrypt(body);
    assert.equal(status, 400, JSON.stringify(json));
    assert.equal(json.error.code, 'invalid_body');
    assert.deepEqual(
      json.error.fields.map((field: { path: string }) => field.path),
      [path],
    );
    assert.equal(await countRows(), before);
  });
}

test('decrypt: unknown members are ignored', async () => {
  const { id, secret } = await keep('x');
  assertStatus(
    await ask('POST', `${base}${DECRYPT}?id=${id}`, {
      bearer: AUTH_TOKEN,
      body: { secret, more: 1 },
    }),
    200,
  );
});

const TEXTS: ReadonlyArray<readonly [what: string, text: string]> = [
  ['one byte', 'x'],
  ['a NUL character alone', '\0'],
  ['NUL characters within', 'a\0b\0\0'],
  ['every ASCII character', String.fromCharCode(...Array(128).keys())],
  ['line breaks of all kinds', '\n a\r\nb\r\u2028c\u2029\t \n'],
  ['spaces around', '  x  '],
  ['emoji with joiners and skin tones', '👩🏽‍🚀🏳️‍🌈😀'],
  ['combining marks, decomposed', 'e\u0301 A\u030a \u1112\u1161\u11ab'],
  ['the same marks, composed', '\u00e9 \u00c5 \ud55c'],
  ['right-to-left marks and text', '\u202eabc\u202c \u05e9\u05dc\u05d5\u05dd'],
  ['noncharacters and the last code point', '\ufffe\uffff\ufeff\u{10ffff}'],
  ['JSON', '{"password":"x","max_reads":1}'],
  ['63 KiB of ASCII', 'x'.repeat(63 * KIB)],
  ['63 KiB in two-byte characters', 'é'.repeat(31.5 * KIB)],
  ['63 KiB in four-byte characters', '😀'.repeat(15.75 * KIB)],
];
for (const [what, text] of TEXTS) {
  test(`a text is returned unchanged: ${what}`, async () => {
    const { id, secret } = await keep(text);
    const answer = await decrypt(id, secret);
    assert.equal(answer.status, 200);
    assert.ok(answer.json.password === text);
  });
}

test('no content type is required', async () => {
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  const made = await ask('POST', base + ENCRYPT, {
    bearer: AUTH_TOKEN,
    headers,
    body: { password: 'x' },
  });
  assert.equal(made.status, 201);
});

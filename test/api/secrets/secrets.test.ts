import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, AUTH_TOKEN, launch, assertStatus } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import { randomBytes, randomUUID } from 'node:crypto';
import { keepUntil } from '../../support/expired.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const ENCRYPT = '/api/store/encrypt';
const DECRYPT = '/api/store/decrypt';
const KIB = 1024;

const gatehouse = await launch(['secrets']);
const { sql } = gatehouse;
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

const rowOf = async (id: string) => (await sql`select * from secrets.secrets where id = ${id}`)[0];

test('decrypt: the same 404, byte by byte, for everything that does not open', async () => {
  const kept = await keep('here');
  const once = await keep('once', { max_reads: 1 });
  await decrypt(once.id, once.secret);
  const expired = await keepUntil(sql, -1, 'timed');
  const cases: ReadonlyArray<readonly [why: string, id: string, secret: string]> = [
    ['an unknown id', randomUUID(), kept.secret],
    ['another key', kept.id, randomBytes(32).toString('base64url')],
    ['the key of another secret', kept.id, once.secret],
    ['the nil UUID', '00000000-0000-0000-0000-000000000000', kept.secret],
    ['an expired secret', expired.id, expired.secret],
    ['an expired secret with a wrong key', expired.id, kept.secret],
    ['a used-up secret', once.id, once.secret],
    ['a used-up secret with a wrong key', once.id, kept.secret],
  ];
  const [first] = await Promise.all(cases.slice(0, 1).map(([, id, secret]) => decrypt(id, secret)));
  assert.equal(first?.json.error.code, 'not_found');
  for (const [why, id, secret] of cases) {
    const answer = await decrypt(id, secret);
    assert.equal(answer.status, 404, why);
    assert.equal(answer.text, first?.text, why);
    assert.deepEqual([...answer.headers.keys()], [...(first?.headers.keys() ?? [])], why);
  }
  assert.equal((await decrypt(kept.id, kept.secret)).status, 200);
});

test('decrypt: a malformed key is 404, with a message that describes a key', async () => {
  const kept = await keep('here');
  const key = Buffer.from(kept.secret, 'base64url');
  const cases: ReadonlyArray<readonly [why: string, id: string, secret: string]> = [
    ['the key in hex', kept.id, key.toString('hex')],
    ['the key in padded Base64', kept.id, key.toString('base64')],
    ['the key with padding', kept.id, `${kept.secret}=`],
    ['the key with a space', kept.id, ` ${kept.secret}`],
    ['the key with a line break', kept.id, `${kept.secret}\n`],
    ['31 bytes', kept.id, key.subarray(0, 31).toString('base64url')],
    ['33 bytes', kept.id, Buffer.concat([key, Buffer.of(0)]).toString('base64url')],
    ['the key in another spelling of the last character', kept.id, respelt(kept.secret)],
    ['a key of 256 characters', kept.id, 'A'.repeat(256)],
    ['no Base64url at all', kept.id, '\0😀'],
  ];
  for (const [why, id, secret] of cases) {
    const { status, json } = await decrypt(id, secret);
    assert.equal(status, 404, why);
    assert.equal(json.error.code, 'not_found', why);
    assert.match(json.error.message, /43 characters/, why);
  }
  assert.equal((await decrypt(kept.id, kept.secret)).status, 200);
});

/** 43 characters hold 258 bits: the last two are padding, which a lenient decoder ignores. */
function respelt(secret: string): string {
  const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  const last = digits.indexOf(secret.slice(-1));
  const other = secret.slice(0, -1) + digits[last + 1];
  assert.deepEqual(Buffer.from(other, 'base64url'), Buffer.from(secret, 'base64url'));
  return other;
}

test('a secret opens until it expires by the clock of the database', async () => {
  const { id, secret } = await keepUntil(sql, 60_000, 'timed');
  assert.equal((await decrypt(id, secret)).status, 200);
  const past = await keepUntil(sql, -1, 'over');
  assert.equal((await decrypt(past.id, past.secret)).status, 404);
});

for (const reads of [1, 2, 5]) {
  test(`max_reads: ${reads} allows exactly ${reads} reads, with wrong keys between them`, async () => {
    const { id, secret } = await keep('counted', { max_reads: reads });
    const wrong = randomBytes(32).toString('base64url');
    for (let read = 0; read < reads; read += 1) {
      assert.equal((await decrypt(id, wrong)).status, 404);
      assert.equal((await rowOf(id))?.reads, String(read));
      assert.equal((await decrypt(id, secret)).json.password, 'counted');
    }
    assert.equal((await decrypt(id, secret)).status, 404);
  });
}

test('the last read removes the content from the row and the secret from the list', async () => {
  const { id, secret } = await keep('gone', { max_reads: 2 });
  const listed = async () => (await list()).json.some((item: { id: string }) => item.id === id);
  await decrypt(id, secret);
  const half = await rowOf(id);
  assert.ok(half?.blob instanceof Buffer && half.commitment instanceof Buffer);
  assert.ok(await listed());
  await decrypt(id, secret);
  const { blob, tag, reads } = (await rowOf(id)) ?? {};
  assert.deepEqual({ blob, tag, reads }, { blob: null, tag: null, reads: '2' });
  assert.ok(!(await listed()));
});

test('the stored length is the same for all short texts', async () => {
  const lengths = new Set<number>();
  for (const text of ['x', 'x'.repeat(16), 'x'.repeat(64), 'x'.repeat(252)]) {
    lengths.add((await rowOf((await keep(text)).id))?.blob.length);
  }
  assert.equal(lengths.size, 1);
});

/** Storing and opening secrets with AUTH_TOKEN, within the limits of the options document. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { keepExpired } from '../../support/expired.ts';
import { ask, AUTH_TOKEN, launch, startGatehouse } from '../../support/gatehouse.ts';
import {
  secretsClient,
  type SecretsClient,
  storedSecret,
  wrongKey,
} from '../../support/secrets.ts';

const KIB = 1024;
const { sql, databaseUrl, secrets: base } = await launch(['secrets']);
const { encrypt, keep, decrypt } = secretsClient(base);

const DAY = 86_400;
const before = await keep('x', { expires_in: 30 * DAY, max_reads: 1_000 });

test('encrypt: 201 with exactly id, key and expiry; another time, others', async () => {
  const body = { password: 'a secret' };
  // No content type is required.
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  const url = `${base}/api/store/encrypt`;
  const { status, json } = await ask('POST', url, { bearer: AUTH_TOKEN, headers, body });
  assert.deepEqual([status, Object.keys(json)], [201, ['id', 'secret', 'expires_at']]);
  assert.match(json.id, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.match(json.secret, /^[A-Za-z0-9_-]{43}$/);
  assert.equal(new Date(json.expires_at).toISOString(), json.expires_at);
  assert.notEqual((await encrypt(body)).json.secret, json.secret);
});

/** What other programs normalize, trim, end at, or take for a wrong character; of 60 KiB. */
const TEXT = [
  '  \0',
  ...String.fromCharCode(...Array(128).keys()),
  'combining marks, decomposed and composed: e\u0301 A\u030a \u1112\u1161\u11ab \u00e9 \u00c5',
  'right-to-left marks and noncharacters: \u202e\ufffe\uffff\ufeff\u{10ffff}',
  'é'.repeat(15 * KIB),
  '😀'.repeat(7.5 * KIB),
  '\0  ',
].join('');

test('a text is returned unchanged; further members are ignored', async () => {
  const { id, secret } = await keep(TEXT);
  const url = `${base}/api/store/decrypt?id=${id.toUpperCase()}`;
  const opened = await ask('POST', url, { bearer: AUTH_TOKEN, body: { secret, more: 1 } });
  assert.ok(opened.json.password === TEXT);
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

test('decrypt: a malformed key is 404, with a message that describes a key', async () => {
  const { id, secret } = await keep('here');
  const key = Buffer.from(secret, 'base64url');
  for (const wrong of [
    ...[key.toString('hex'), key.toString('base64'), `${secret}=`, ` ${secret}`, `${secret}\n`],
    ...[key.subarray(0, 31).toString('base64url'), `${secret}AA`, '\0😀'],
  ]) {
    const { status, json } = await decrypt(id, wrong);
    assert.deepEqual([status, json.error.code], [404, 'not_found'], wrong);
    assert.match(json.error.message, /43 characters/);
  }
  assert.equal((await decrypt(id, secret)).status, 200);
});

// --- The options document is what encrypt enforces

const lifetimes = (usual: number | null, max: number) => ({
  expires_in: { default: usual, max },
});
const reads = (usual: number | null, max: number) => ({ max_reads: { default: usual, max } });
const DEFAULTS = {
  ...lifetimes(7 * DAY, 30 * DAY),
  ...reads(null, 1_000),
  password: { max_bytes: 64_512 },
  passphrase: { min_length: 4 },
  share_pages: false,
  caller: { role: 'operator', user: null },
};

/** Checks the defaults, each maximum, and one more than each maximum. */
async function assertTrue({ options, keep, encrypt }: SecretsClient): Promise<void> {
  const { expires_in, max_reads, passphrase, password } = (await options()).json;
  const most = { expires_in: expires_in.max, max_reads: max_reads.max };
  for (const [request, seconds, reads] of [
    [{}, expires_in.default, max_reads.default],
    [most, expires_in.max, max_reads.max],
  ]) {
    const { id, expires_at } = await keep('x', request);
    const row = await storedSecret(sql, id);
    assert.deepEqual([row.expires_at?.toISOString() ?? null, row.max_reads], [expires_at, reads]);
    const lifetime = row.expires_at && (row.expires_at - row.created_at) / 1_000;
    assert.equal(lifetime === null, seconds === null);
    assert.ok(Math.abs(lifetime - seconds) < 10, `${lifetime} s instead of ${seconds} s`);
  }
  const longest = 'é'.repeat(password.max_bytes / 2);
  const shortest = 'x'.repeat(passphrase.min_length);
  await keep(longest, { passphrase: shortest });
  const { json } = await encrypt({
    password: `${longest}x`,
    expires_in: expires_in.max + 1,
    max_reads: max_reads.max + 1,
    passphrase: shortest.slice(1),
  });
  assert.deepEqual(json.error.fields, [
    { path: '/password', message: `must have at most ${password.max_bytes} bytes in UTF-8` },
    { path: '/expires_in', message: `must be a whole number from 1 to ${expires_in.max}` },
    { path: '/max_reads', message: `must be a whole number from 1 to ${max_reads.max}` },
    { path: '/passphrase', message: `must have at least ${shortest.length} characters` },
  ]);
}

test('options: exactly these members and values by default, and encrypt obeys them', async () => {
  const client = secretsClient(base);
  assert.equal((await client.options()).text, JSON.stringify(DEFAULTS));
  await assertTrue(client);
});

const SETTINGS: ReadonlyArray<readonly [environment: Record<string, string>, expected: object]> = [
  [
    { SECRET_TTL: '3600', SECRET_READS: '3', SECRET_READS_MAX: '5' },
    { ...lifetimes(3_600, 30 * DAY), ...reads(3, 5) },
  ],
  [
    { SECRET_TTL: '0', SECRET_READS: '9', SECRET_READS_MAX: '5' },
    { ...lifetimes(null, 30 * DAY), ...reads(5, 5) },
  ],
  [
    { SECRET_TTL: '7200', SECRET_TTL_MAX: '3600', SECRET_READS: '1' },
    { ...lifetimes(3_600, 3_600), ...reads(1, 1_000) },
  ],
  [
    { SECRET_TTL_MAX: String(366 * DAY), SECRETS_MAX_BODY_BYTES: '1048576' },
    { ...lifetimes(7 * DAY, 366 * DAY), password: { max_bytes: 1_047_552 } },
  ],
  [{ SHARE_PAGES: 'on' }, { share_pages: true, password: { max_bytes: 1_637_376 } }],
  [{ SHARE_PAGES: 'on', SECRETS_MAX_BODY_BYTES: '65536' }, { share_pages: true }],
];
for (const [environment, expected] of SETTINGS) {
  const what = Object.entries(environment).join(' and ');
  test(`options: with ${what}, encrypt accepts each limit and rejects more`, async (t) => {
    const { url } = await startGatehouse(t, ['secrets'], databaseUrl, environment);
    const client = secretsClient(url.secrets);
    assert.deepEqual((await client.options()).json, { ...DEFAULTS, ...expected });
    await assertTrue(client);
    assert.equal((await client.decrypt(before.id, before.secret)).status, 200, 'as it was stored');
  });
}

/**
 * Share pages over HTTP: their files, reading by a link, its state, the receipt for its sender, and
 * deletion by either of them. `make e2e NAME=browser` tests them in a browser.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { keepExpired } from '../../support/expired.ts';
import { type Answer, ask, AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { pagesOf, testPages } from '../../support/page-assertions.ts';
import { secretsClient, storedSecret, wrongKey } from '../../support/secrets.ts';
import { wordsOf } from '../../support/words.ts';

const SETTINGS = { SHARE_PAGES: 'on', LOG_LEVEL: 'debug', TRUSTED_PROXIES: '127.0.0.1' };
const { sql, secrets: base, stdout } = await launch(['secrets'], SETTINGS);
const { encrypt, remove } = secretsClient(base);

const TEXT = 'marked-text';
const store = async (conditions: object = {}) =>
  (await encrypt({ password: TEXT, ...conditions })).json;
type Headers = Record<string, string>;
const send = (path: string, body: unknown, headers: Headers = {}) =>
  ask('POST', base + path, { body, headers });
const stateOf = (id: string, secret: string) => send(`/s/${id}/status`, { secret });
const open = (id: string, secret: string, headers?: Headers) =>
  send(`/s/${id}`, { secret }, headers);
const showReceipt = (id: string, key: string) => send(`/r/${id}`, { key });
const end = (id: string, key: string) => send(`/s/${id}/delete`, { key });
const outcomeOf = ({ status, json }: Answer) =>
  json.error === undefined ? status : `${status} ${json.error.code}`;
const NOT_FOUND = '404 not_found';

test('the state of a link says how often it can be opened, and changes nothing', async () => {
  const { id, secret, expires_at } = await store({ max_reads: 3, passphrase: 'said by phone' });
  const before = await storedSecret(sql, id);
  const { json } = await stateOf(id, secret);
  const ends = { max_reads: 3, expires_at, ended_at: null };
  assert.deepEqual(json, { status: 'stored', passphrase: true, reads: 0, ...ends });
  assert.deepEqual(await storedSecret(sql, id), before);
  const plain = await store();
  assert.equal((await stateOf(plain.id, plain.secret)).json.passphrase, false);
});

test('only holders of its key learn how a secret ended', async () => {
  const read = await store({ max_reads: 1 });
  const deleted = await store();
  await open(read.id, read.secret);
  await remove(deleted.id);
  for (const [{ id, secret }, status] of [
    [read, 'read'],
    [deleted, 'deleted'],
    [await keepExpired(sql), 'expired'],
  ] as const) {
    const { json } = await stateOf(id, secret);
    assert.deepEqual([json.status, json.passphrase], [status, false]);
    assert.ok(Date.parse(json.ended_at) <= Date.now());
    assert.equal(outcomeOf(await stateOf(id, wrongKey())), NOT_FOUND);
    assert.equal(outcomeOf(await open(id, secret)), NOT_FOUND);
  }
  const texts = [
    await stateOf(randomUUID(), read.secret),
    await stateOf(read.id, wrongKey()),
    await stateOf(read.id, 'x'),
  ].map(({ json }) => json.error.message);
  assert.equal(new Set(texts).size, 1);
});

test('after a read, the reply says what is left, and allows to delete it', async () => {
  const { id, secret, expires_at } = await store({ max_reads: 3 });
  const { delete_key, ...read } = (await open(id, secret)).json;
  assert.deepEqual(read, { password: TEXT, reads_left: 2, expires_at });
  assert.equal(outcomeOf(await showReceipt(id, delete_key)), NOT_FOUND);
  assert.deepEqual((await end(id, delete_key)).json, { id, status: 'deleted' });
  assert.equal(outcomeOf(await open(id, secret)), NOT_FOUND);
  const unlimited = await store();
  assert.equal((await open(unlimited.id, unlimited.secret)).json.reads_left, null);
});

test('the receipt key shows the receipt and deletes the secret; no other key does, and none is stored', async () => {
  const { id, secret, receipt } = await store({ max_reads: 2 });
  assert.match(receipt, /^[A-Za-z0-9_-]{43}$/);
  const other = await store();
  const summary = async () => {
    const { text, json } = await showReceipt(id, receipt);
    assert.ok(!text.includes(TEXT));
    return [json.status, json.reads];
  };
  assert.deepEqual(await summary(), ['stored', 0]);
  const { delete_key } = (await open(id, secret)).json;
  for (const answer of [await open(id, receipt), await stateOf(id, receipt)])
    assert.equal(outcomeOf(answer), NOT_FOUND);
  for (const key of [wrongKey(), other.receipt, secret]) {
    for (const answer of [await showReceipt(id, key), await end(id, key)])
      assert.equal(outcomeOf(answer), NOT_FOUND);
  }
  assert.deepEqual(await summary(), ['stored', 1]);
  assert.equal((await end(id, receipt)).status, 200);
  assert.deepEqual(await summary(), ['deleted', 1]);
  const rows = await sql`select s::text as text from secrets.secrets s where id = ${id}
    union all select t::text from secrets.throttles t`;
  const stored = rows.map(({ text }) => text).join();
  for (const key of [receipt, delete_key]) {
    assert.ok(!stdout().includes(key));
    assert.ok(!stored.includes(Buffer.from(key, 'base64url').toString('hex')));
  }
});

test('after 60 wrong keys of any kind from one network, wrong ones are 429 and right ones pass', async () => {
  const { id, secret, receipt } = await store({ max_reads: 1 });
  const other = await store();
  const from = { 'x-forwarded-for': '203.0.113.77' };
  const wrong = wrongKey();
  const guesses = [
    [`/r/${id}`, { key: wrong }],
    [`/s/${id}/delete`, { key: wrong }],
    [`/s/${id}`, { secret: wrong }],
    [`/s/${id}/status`, { secret: wrong }],
  ] as const;
  for (let count = 0; count < 60; count += 1) {
    const [path = '', body] = guesses[count % 4] ?? [];
    assert.equal(outcomeOf(await send(path, body, from)), NOT_FOUND);
    assert.equal(outcomeOf(await open(other.id, other.secret, from)), 200, 'it is not counted');
  }
  for (const [path, body] of guesses) {
    const refused = await send(path, body, from);
    assert.equal(outcomeOf(refused), '429 too_many_requests');
    const wait = Number(refused.headers.get('retry-after'));
    assert.ok(wait > 0 && wait <= 600, `${wait} seconds`);
  }
  assert.equal(outcomeOf(await open(id, wrong)), NOT_FOUND, 'another network');
  assert.equal((await send(`/r/${id}`, { key: receipt }, from)).json.status, 'stored');
  assert.equal((await send(`/s/${id}/status`, { secret }, from)).json.status, 'stored');
  assert.equal((await open(id, secret, from)).json.password, TEXT);
  // Who was second has the right key, too.
  assert.equal(outcomeOf(await open(id, secret, from)), NOT_FOUND);
  assert.equal(outcomeOf(await send(`/s/${id}/delete`, { key: receipt }, from)), NOT_FOUND);
  assert.equal(outcomeOf(await open(id, wrong, from)), '429 too_many_requests', 'still');
});

test('loading a link changes neither row, receipt nor throttle', async () => {
  const { id, secret } = await store({ max_reads: 1 });
  const state = async () => [
    await storedSecret(sql, id),
    [...(await sql`select * from secrets.throttles order by key`)],
  ];
  const before = await state();
  const headers = { 'user-agent': 'a link scanner', 'sec-purpose': 'prefetch;prerender' };
  // Also with the key in the query, as a scanner might send it.
  for (const method of ['GET', 'HEAD', 'OPTIONS', 'PUT'])
    for (const path of [`/s/${id}?${secret}`, `/s/${id}`])
      await ask(method, base + path, { headers });
  assert.deepEqual(await state(), before);
  assert.equal((await open(id, secret)).json.password, TEXT);
});

test('a link opens with any or no bearer token, as often as allowed', async () => {
  for (const bearer of [undefined, AUTH_TOKEN, 'wrong']) {
    const { id, secret, expires_at } = await store({ max_reads: 1 });
    const headers = bearer === undefined ? {} : { authorization: `Bearer ${bearer}` };
    const path = bearer === undefined ? `${id.toUpperCase()}/` : id;
    assert.equal(outcomeOf(await open(path, wrongKey(), headers)), NOT_FOUND);
    const { json } = await open(path, secret, headers);
    assert.deepEqual(json, { password: TEXT, reads_left: 0, expires_at, delete_key: null });
    assert.equal(outcomeOf(await open(id, secret, headers)), NOT_FOUND);
    const { reads, failed_reads, ending } = await storedSecret(sql, id);
    assert.deepEqual([reads, failed_reads, ending], ['1', '2', 'read']);
  }
});

// --- The pages

testPages(base, pagesOf('secrets'), {
  files: [
    ['/', 'make.html'],
    [`/s/${randomUUID()}`, 'reveal.html'],
    ['/s/not-an-id', 'reveal.html'],
    [`/r/${randomUUID()}`, 'receipt.html'],
    ['/links', 'links.html'],
    ['/request', 'request.html'],
    [`/request/${randomUUID()}`, 'kept-request.html'],
    [`/answer/${randomUUID()}`, 'answer.html'],
    ['/pages/style.css', 'style.css'],
    ['/pages/qr.js', 'qr.js'],
  ],
  notFound: wordsOf(`
    /pages/ /pages /pages/x.js /pages/STYLE.css /pages/style.css.map /pages/make.html
    /pages/style.css%00 /pages/%00 /pages/..%2f..%2fpackage.json /pages/%2e%2e%2froutes.ts
    /pages/..%5croutes.ts /pages/../../package.json /pages/.. /pages/%2e%2e /pages/./style.css
    /pages//style.css /pages/style.css/x /pages/constructor /pages/__proto__ /pages/%2fetc%2fpasswd
    /s /s/ /s/a/b
  `),
  links: /^(#main|\/(request|links)?)$/,
  without: /^(states|address|qr|envelope|form|link|request-keys|reveal)\.js$/,
});

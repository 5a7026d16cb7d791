/**
 * Who may store secrets and see receipts: named tokens, people behind a proxy, and anyone. What
 * each role may call: `test/api/contract/callers-others.test.ts`.
 */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { openConnections } from '../../support/connections.ts';
import { type Answer, ask, launch, startGatehouse } from '../../support/gatehouse.ts';
import { secretsClient, storedSecret } from '../../support/secrets.ts';
import { problems } from '../../support/settings.ts';
import { exchange } from '../../support/socket.ts';
import { createSecretToken } from '../../support/tokens.ts';

const { sql, databaseUrl, secrets: base, log } = await launch(['secrets'], { LOG_LEVEL: 'debug' });
const database = openConnections({ after }, databaseUrl, 'secrets');
const { token: ada } = await createSecretToken(database, { name: 'ada', role: 'sender' });

type Headers = Record<string, string>;
const store = (url: string, headers: Headers = {}, bearer?: string) =>
  ask('POST', `${url}/api/store/encrypt`, {
    headers,
    body: { password: 'x', max_reads: 2 },
    ...(bearer ? { bearer } : {}),
  });
const get = (url: string, path: string, headers: Headers = {}) =>
  ask('GET', url + path, { headers });
const outcomeOf = ({ status, json }: Answer) =>
  json.error === undefined ? status : `${status} ${json.error.code}`;
const REFUSED = '401 unauthorized';

test('the creator is in the row and in the log, and a token like that of a sender is 401', async () => {
  const { id } = (await store(base, {}, ada)).json;
  const { creator } = await storedSecret(sql, id);
  assert.match(creator, /^token:[0-9a-f-]{36}$/);
  assert.ok(log().some((line) => line.message === 'request' && line.creator === creator));
  for (const token of [`share:${'A'.repeat(43)}`, ada.replace('share:', ''), undefined])
    assert.equal(outcomeOf(await store(base, {}, token)), REFUSED);
});

const HEADER = {
  TRUSTED_USER_HEADER: 'X-Auth-Username',
  TRUSTED_PROXIES: '127.0.0.1',
  SHARE_PAGES: 'on',
};
const BARE = { 'x-auth-username': 'ada', 'x-forwarded-for': '203.0.113.5' };
const SAME = { ...BARE, 'sec-fetch-site': 'same-origin' };
const serve = async (t: TestContext, environment: Headers) =>
  (await startGatehouse(t, ['secrets'], databaseUrl, environment)).url.secrets;

test('a person whom a trusted proxy names stores secrets, and sees their own receipts', async (t) => {
  const url = await serve(t, HEADER);
  const options = await get(url, '/api/store/options', SAME);
  assert.deepEqual(options.json.caller, { role: 'sender', user: 'ada' });
  const { id } = (await store(url, SAME)).json;
  assert.equal((await storedSecret(sql, id)).creator, 'user:ada');
  const bob = { ...SAME, 'x-auth-username': 'bob' };
  for (const [path, headers, outcome] of [
    [`/api/store/${id}`, SAME, 200],
    [`/api/store/${id}`, bob, '404 not_found'],
    ['/api/store', SAME, '403 forbidden'],
  ] as const)
    assert.equal(outcomeOf(await get(url, path, headers)), outcome);
});

test('the header counts once, with a name, from the proxy, and from a page of this host', async (t) => {
  const url = await serve(t, HEADER);
  const elsewhere = await serve(t, { ...HEADER, TRUSTED_PROXIES: '198.51.100.7' });
  const foreign = { ...BARE, origin: 'https://evil.example' };
  for (const [to, headers, outcome] of [
    [url, { ...BARE, origin: url }, 201],
    [url, BARE, REFUSED],
    [url, { ...SAME, 'sec-fetch-site': 'cross-site' }, '403 cross_site'],
    [url, foreign, '403 cross_site'],
    [url, { ...SAME, 'x-auth-username': '' }, REFUSED],
    [url, { ...SAME, 'x-auth-username': 'ada, bob' }, REFUSED],
    [url, { ...SAME, 'x-auth-username': 'x'.repeat(256) }, REFUSED],
    [elsewhere, SAME, REFUSED],
    [base, SAME, REFUSED],
  ] as const)
    assert.equal(outcomeOf(await store(to, headers)), outcome, JSON.stringify(headers));
  for (const [headers, outcome] of [
    [{ ...BARE, origin: url }, 200],
    [{ ...SAME, 'sec-fetch-site': 'none' }, REFUSED],
    [foreign, REFUSED],
    [{ ...BARE, origin: 'null' }, REFUSED],
  ] as const)
    assert.equal(outcomeOf(await get(url, '/api/store/options', headers)), outcome);
});

const ANYONE = { SHARE_ANYONE: 'on', SHARE_PAGES: 'on', TRUSTED_PROXIES: '127.0.0.1' };
const from = (address: string) => ({ 'x-forwarded-for': address });

test('with SHARE_ANYONE, anyone stores secrets, throttled by network, and sees nothing', async (t) => {
  const url = await serve(t, ANYONE);
  const { caller } = (await get(url, '/api/store/options')).json;
  assert.deepEqual(caller, { role: 'anyone', user: null });
  const { id, secret } = (await store(url, from('203.0.113.9'))).json;
  assert.equal((await ask('POST', `${url}/s/${id}`, { body: { secret } })).json.password, 'x');
  for (const path of [`/api/store/${id}`, '/api/store'])
    assert.equal(outcomeOf(await get(url, path)), REFUSED);
  for (let count = 1; count < 30; count += 1)
    assert.equal((await store(url, from('203.0.113.9'))).status, 201, String(count));
  const late = await store(url, from('203.0.113.9'));
  assert.equal(outcomeOf(late), '429 too_many_requests');
  assert.ok(Number(late.headers.get('retry-after')) > 0);
  assert.equal((await store(url, from('203.0.113.10'))).status, 201, 'another network');
  assert.equal((await store(url, from('203.0.113.9'), ada)).status, 201, 'a token');
  assert.equal(outcomeOf(await store(url, from('203.0.113.11'), 'wrong')), REFUSED);
});

test('an invalid body of anyone counts, and a later one is not read', async (t) => {
  const url = await serve(t, ANYONE);
  const paths = ['/api/store/encrypt', '/api/store/request'];
  const headers = from('203.0.113.40');
  for (let count = 0; count < 30; count += 1) {
    const body = { password: '' };
    const answer = await ask('POST', `${url}${paths[count % 2]}`, { body, headers });
    assert.equal(outcomeOf(answer), '400 invalid_body');
  }
  for (const path of paths) {
    const head = [`POST ${path} HTTP/1.1`, 'Host: a', 'X-Forwarded-For: 203.0.113.40'];
    const announced = ['Content-Length: 8000', 'Expect: 100-continue'];
    const { status } = await exchange(url, [...head, ...announced]);
    assert.equal(status, 429, 'without 100 Continue');
  }
  assert.equal((await store(url, headers, ada)).status, 201, 'a token');
});

test('a page of large secrets is short', async (t) => {
  const url = await serve(t, { SECRETS_MAX_BODY_BYTES: '1048576' });
  const { keep, list } = secretsClient(url);
  await keep('x'.repeat(1_047_552));
  assert.ok((await list('?limit=100')).json.length <= 9);
});

test('a setting without effect stops the start', () => {
  const proxied = { TRUSTED_USER_HEADER: 'X User', TRUSTED_PROXIES: '10.0.0.1' };
  assert.deepEqual(problems(proxied, ['secrets']), [
    'TRUSTED_USER_HEADER must be the name of a header.',
  ]);
  const [said = '', ...more] = problems({ TRUSTED_USER_HEADER: 'X-User' }, ['secrets']);
  assert.deepEqual([/^TRUSTED_USER_HEADER requires TRUSTED_PROXIES/.test(said), more], [true, []]);
  assert.deepEqual(problems({ SHARE_ANYONE: 'on' }, ['secrets']), [
    'SHARE_ANYONE=on requires SHARE_PAGES=on.',
  ]);
});

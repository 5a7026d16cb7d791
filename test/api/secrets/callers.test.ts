/**
 * Who may store secrets and see receipts: AUTH_TOKEN, named tokens, people behind a proxy, and
 * anyone.
 */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { secretsClient } from '../../support/secrets.ts';
import { createSecretToken } from '../../support/tokens.ts';
import { ConfigurationError } from '../../../src/platform/process/settings.ts';
import { openConnections } from '../../support/connections.ts';
import { type Answer, ask, launch, startGatehouse, assertStatus } from '../../support/gatehouse.ts';
import { connectTo, headOf } from '../../support/socket.ts';
import { readConfig } from '../../support/settings.ts';

const gatehouse = await launch(['secrets'], { LOG_LEVEL: 'debug' });
const { sql, databaseUrl } = gatehouse;
const base = gatehouse.url.secrets;
const database = openConnections({ after }, databaseUrl, 'secrets');
const tokenOf = async (role: 'sender' | 'operator') =>
  (await createSecretToken(database, { name: role, role })).token;
const ada = await tokenOf('sender');

type Headers = Record<string, string>;
const store = (url: string, headers: Headers = {}, bearer?: string): Promise<Answer> =>
  ask('POST', `${url}/api/store/encrypt`, {
    headers,
    body: { password: 'x', max_reads: 2 },
    ...(bearer ? { bearer } : {}),
  });
const refused = ({ status, json }: Answer, expected: number, code: string) =>
  assert.deepEqual([status, json.error?.code], [expected, code]);

test('the creator is in the row and in the log, and an invented token is 401', async () => {
  const { id } = (await store(base, {}, ada)).json;
  const [row] = await sql`select creator from secrets.secrets where id = ${id}`;
  assert.match(row?.creator, /^token:[0-9a-f-]{36}$/);
  assert.ok(
    gatehouse.log().some((line) => line.message === 'request' && line.creator === row?.creator),
  );
  refused(await store(base, {}, `share:${'A'.repeat(43)}`), 401, 'unauthorized');
  refused(await store(base, {}, ada.replace('share:', '')), 401, 'unauthorized');
  refused(await store(base), 401, 'unauthorized');
});

const HEADER = {
  TRUSTED_USER_HEADER: 'X-Auth-Username',
  TRUSTED_PROXIES: '127.0.0.1',
  SHARE_PAGES: 'on',
};
const SAME = {
  'x-auth-username': 'ada',
  'sec-fetch-site': 'same-origin',
  'x-forwarded-for': '203.0.113.5',
};
const serve = async (t: TestContext, environment: Headers) =>
  (await startGatehouse(t, ['secrets'], databaseUrl, environment)).url.secrets;

test('a person whom a trusted proxy names stores secrets, and sees their own receipts', async (t) => {
  const url = await serve(t, HEADER);
  const options = await ask('GET', `${url}/api/store/options`, { headers: SAME });
  assert.deepEqual(options.json.caller, { role: 'sender', user: 'ada' });
  const { id } = (await store(url, SAME)).json;
  assert.equal(
    (await ask('GET', `${url}/api/store/${id}`, { headers: SAME })).json.status,
    'stored',
  );
  refused(
    await ask('GET', `${url}/api/store/${id}`, { headers: { ...SAME, 'x-auth-username': 'bob' } }),
    404,
    'not_found',
  );
  refused(await ask('GET', `${url}/api/store`, { headers: SAME }), 403, 'forbidden');
  const [row] = await sql`select creator from secrets.secrets where id = ${id}`;
  assert.equal(row?.creator, 'user:ada');
});

test('the header counts only if the request comes from a page of this host', async (t) => {
  const url = await serve(t, HEADER);
  const { 'sec-fetch-site': _site, ...bare } = SAME;
  refused(await store(url, bare), 401, 'unauthorized');
  refused(await store(url, { ...SAME, 'sec-fetch-site': 'cross-site' }), 403, 'cross_site');
  refused(await store(url, { ...bare, origin: 'https://evil.example' }), 403, 'cross_site');
  assert.equal((await store(url, { ...bare, origin: url })).status, 201);
  const read = (headers: Headers) => ask('GET', `${url}/api/store/options`, { headers });
  assert.equal((await read({ ...bare, origin: url })).status, 200);
  const foreign = { ...bare, origin: 'https://evil.example' };
  for (const headers of [
    { ...SAME, 'sec-fetch-site': 'none' },
    foreign,
    { ...bare, origin: 'null' },
  ])
    refused(await read(headers), 401, 'unauthorized');
});

test('an empty name, two names and a name that is too long are not accepted', async (t) => {
  const url = await serve(t, HEADER);
  for (const name of ['', 'ada, bob', 'x'.repeat(256)]) {
    refused(await store(url, { ...SAME, 'x-auth-username': name }), 401, 'unauthorized');
  }
});

test('the header is ignored unless a trusted proxy sent it', async (t) => {
  const url = await serve(t, { ...HEADER, TRUSTED_PROXIES: '198.51.100.7' });
  refused(await store(url, SAME), 401, 'unauthorized');
  refused(await store(base, SAME), 401, 'unauthorized');
});

test('with SHARE_ANYONE, anyone stores secrets, throttled by network, and sees nothing', async (t) => {
  const url = await serve(t, {
    SHARE_ANYONE: 'on',
    SHARE_PAGES: 'on',
    TRUSTED_PROXIES: '127.0.0.1',
  });
  const from = (address: string) => ({ 'x-forwarded-for': address });
  assert.deepEqual((await ask('GET', `${url}/api/store/options`)).json.caller, {
    role: 'anyone',
    user: null,
  });
  const { id, secret } = (await store(url, from('203.0.113.9'))).json;
  assert.equal((await ask('POST', `${url}/s/${id}`, { body: { secret } })).json.password, 'x');
  for (const path of [`/api/store/${id}`, '/api/store'])
    refused(await ask('GET', url + path), 401, 'unauthorized');
  for (let i = 1; i < 30; i += 1)
    assert.equal((await store(url, from('203.0.113.9'))).status, 201, String(i));
  const late = await store(url, from('203.0.113.9'));
  refused(late, 429, 'too_many_requests');
  assert.ok(Number(late.headers.get('retry-after')) > 0);
  assert.equal((await store(url, from('203.0.113.10'))).status, 201, 'another network');
  assertStatus(await store(url, from('203.0.113.9'), ada), 201, 'a token is not throttled');
  refused(await store(url, from('203.0.113.11'), 'wrong'), 401, 'unauthorized');
});

test('an invalid body of anyone counts, and a later one is not read', async (t) => {
  const url = await serve(t, {
    SHARE_ANYONE: 'on',
    SHARE_PAGES: 'on',
    TRUSTED_PROXIES: '127.0.0.1',
  });
  const headers = { 'x-forwarded-for': '203.0.113.40' };
  for (let i = 1; i <= 30; i += 1) {
    const path = i % 2 === 0 ? '/api/store/encrypt' : '/api/store/request';
    const answer = await ask('POST', url + path, { body: { password: '' }, headers });
    refused(answer, 400, 'invalid_body');
  }
  for (const path of ['/api/store/encrypt', '/api/store/request']) {
    const client = await connectTo(url);
    client.send(
      headOf([
        `POST ${path} HTTP/1.1`,
        'Host: a',
        'X-Forwarded-For: 203.0.113.40',
        'Content-Length: 8000',
        'Expect: 100-continue',
      ]),
    );
    assert.equal((await client.answer()).status, 429, 'without 100 Continue');
    client.leave();
  }
  assert.equal((await store(url, headers, ada)).status, 201, 'a token is not throttled');
});

test('a page of large secrets is short', async (t) => {
  const url = await serve(t, { SECRETS_MAX_BODY_BYTES: '1048576' });
  const { encrypt, list } = secretsClient(url);
  assert.equal((await encrypt({ password: 'x'.repeat(1_047_552) })).status, 201);
  assert.ok((await list('?limit=100')).json.length <= 9);
});

const WRONG: ReadonlyArray<readonly [environment: Headers, problem: RegExp]> = [
  [{ TRUSTED_USER_HEADER: 'X-User' }, /^TRUSTED_USER_HEADER requires TRUSTED_PROXIES/],
  [
    { TRUSTED_USER_HEADER: 'X User', TRUSTED_PROXIES: '10.0.0.1' },
    /^TRUSTED_USER_HEADER must be the name of a header\.$/,
  ],
  [{ SHARE_ANYONE: 'on' }, /^SHARE_ANYONE=on requires SHARE_PAGES=on\.$/],
];
for (const [environment, problem] of WRONG) {
  test(`${Object.keys(environment).join(', ')}: a setting without effect stops the start`, () => {
    const needed = {
      DATABASE_URL: 'postgres://u:p@localhost/x',
      SERVER_SECRET: 'x'.repeat(32),
      AUTH_TOKEN: 'y'.repeat(32),
    };
    assert.throws(
      () => readConfig(['secrets'], 'serve', { ...needed, ...environment }),
      (error) => {
        assert.ok(error instanceof ConfigurationError);
        assert.deepEqual(
          [error.problems.length, problem.test(error.problems[0] ?? '')],
          [1, true],
          error.message,
        );
        return true;
      },
    );
  });
}

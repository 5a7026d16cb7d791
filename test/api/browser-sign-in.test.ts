/**
 * SIGNIN_VERIFY_URL: the share pages and the inbox accept a session of the identity service. It, or
 * a proxy in front of it, may close a kept connection at any time.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import https from 'node:https';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { randomToken } from '../../src/platform/crypto/token.ts';
import { holdTimers, stopClock } from '../support/clock.ts';
import { ADMIN_PASSWORD, ask, AUTH_TOKEN, launch, startGatehouse } from '../support/gatehouse.ts';
import { ORIGIN, startPortal } from '../support/portal.ts';
import { listenOn } from '../support/ports.ts';
import { listenOnTcp } from '../support/socket.ts';
import { test, until } from '../support/until.ts';

const portal = await startPortal({ after }, { COOKIE_DOMAIN: '' });
const { identity, databaseUrl, sql, admin, call, signIn } = portal;
const chief = (await signIn('admin', { fields: { password: ADMIN_PASSWORD } })).host;
const user = await portal.addSignedIn({ username: 'grace' });
const grace = user.host;

const VERIFY = `${identity}/api/auth/verify`;
const OWN_PAGE = { 'sec-fetch-site': 'same-origin' };
/** The pages, and what a browser asks them with a cookie. */
async function startPages(verify = `${VERIFY}?redirect=401`, more = {}) {
  const { url, log } = await startGatehouse({ after }, ['secrets', 'webhook'], databaseUrl, {
    ...{ SHARE_PAGES: 'on', INBOX_PAGE: 'on', INBOX_USERS: 'admin' },
    SIGNIN_VERIFY_URL: verify,
    ...more,
  });
  const getter =
    (address: string) =>
    (cookie: string, headers: Readonly<Record<string, string>> = OWN_PAGE) =>
      ask('GET', address, { headers: { cookie, ...headers } });
  const options = getter(`${url.secrets}/api/store/options`);
  const delivery = getter(`${url.webhook}/events/delivery`);
  return {
    ...{ url, options, delivery },
    errors: () => log().filter(({ level }) => level === 'error'),
    statuses: async (cookie: string) => [
      (await options(cookie)).status,
      (await delivery(cookie)).status,
    ],
  };
}
const pages = await startPages();
const { options, delivery } = pages;

const USER =
  'HTTP/1.1 200 OK\r\nx-auth-username: ada\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n';
const COOKIE = `session=${'a'.repeat(44)}`;

/** Each connection answers one request, and ends without a reply when the next one arrives. */
let requests = 0;
const port = await listenOnTcp({ after }, (socket) => {
  let isUsed = false;
  socket.on('data', () => {
    requests += 1;
    if (isUsed) return socket.resetAndDestroy();
    isUsed = true;
    return socket.write(USER);
  });
});
const verify = `http://127.0.0.1:${port}/api/auth/verify`;

test('a session opens the share pages for every user, the inbox for INBOX_USERS', async () => {
  for (const [cookie, name, inbox] of [
    [chief, 'admin', 200],
    [grace, 'grace', 401],
  ] as const) {
    assert.deepEqual((await options(cookie)).json.caller, { role: 'sender', user: name });
    assert.equal((await delivery(cookie)).status, inbox);
  }
  assert.equal((await delivery(chief)).json.user, 'admin');
  const headers = { cookie: chief, ...OWN_PAGE };
  const paused = await ask('POST', `${pages.url.webhook}/events/pause`, { headers });
  assert.deepEqual(paused.json.paused_by, 'user:admin');
  await ask('POST', `${pages.url.webhook}/events/resume`, { headers });
});

test('without a session, the reply names the sign-in page', async () => {
  for (const cookie of ['', '__Host-gatehouse=wrong', 'session=x'])
    for (const { status, headers } of [await options(cookie), await delivery(cookie)])
      assert.deepEqual([status, headers.get('location')], [401, `${ORIGIN}/login`], cookie);
});

test('a long cookie of another program does not sign a user out', async () => {
  const others = `session=${'x'.repeat(4_000)}; other=${'y'.repeat(4_000)}`;
  for (const cookie of [`${others}; ${grace}`, `${grace}; ${others}`])
    assert.equal((await options(cookie)).json.caller?.user, 'grace');
  assert.equal((await options(`${grace}; ${grace}${'x'.repeat(4_000)}`)).status, 401);
});

test('a request that no page of this host sent is not signed in by a cookie', async () => {
  const sites = ['cross-site', 'same-site', 'none'].map((site) => ({ 'sec-fetch-site': site }));
  for (const headers of [{}, ...sites, { origin: ORIGIN }]) {
    const { status, headers: received } = await options(chief, headers);
    assert.deepEqual([status, received.get('location')], [401, null], JSON.stringify(headers));
    assert.equal((await delivery(chief, headers)).status, 401);
  }
});

test('a token takes precedence over a cookie', async () => {
  const send = (token: string) => options(grace, { ...OWN_PAGE, authorization: `Bearer ${token}` });
  assert.deepEqual((await send(AUTH_TOKEN)).json.caller, { role: 'operator', user: null });
  assert.equal((await send('wrong')).status, 401);
});

test('a session that ended opens nothing at the next request', async () => {
  const { id, host } = await portal.addSignedIn();
  assert.equal((await options(host)).status, 200);
  await sql`update identity.sessions set revoked = true where user_id = ${id}`;
  assert.equal((await options(host)).status, 401);
});

test('SHARE_USERS and INBOX_USERS admit members of a group, from the next request on', async () => {
  const lists = { SHARE_USERS: 'group:writers', INBOX_USERS: 'group:ops,admin' };
  const own = await startPages(`${VERIFY}?redirect=401`, lists);
  for (const [groups, expected] of [
    [[], [401, 401]],
    [['writers'], [200, 401]],
    [
      ['ops', 'writers'],
      [200, 200],
    ],
    [[], [401, 401]],
  ] as const) {
    await call(admin.token, 'PATCH', `/api/user/${user.id}`, { groups });
    assert.deepEqual(await own.statuses(grace), expected);
  }
});

test('a rule of the address applies', async () => {
  const own = await startPages(`${VERIFY}?redirect=401&require=super_admin`);
  assert.deepEqual(
    [await own.statuses(chief), await own.statuses(grace)],
    [
      [200, 200],
      [401, 401],
    ],
  );
});

test('SHARE_ANYONE admits who is not signed in, and names who is', async () => {
  const own = await startPages(`${VERIFY}?redirect=401`, { SHARE_ANYONE: 'on' });
  assert.equal((await own.options('')).json.caller.role, 'anyone');
  assert.equal((await own.options(grace)).json.caller.user, 'grace');
});

/** How long the pages wait for the sign-in service. */
const VERIFY_MS = 5_000;

test('an identity service that is down, slow or wrong opens nothing: 503', async (t) => {
  const endWaits = holdTimers(t, VERIFY_MS);
  let givenUp = 0;
  const silent = createServer(() => {
    givenUp += endWaits();
  });
  for (const verify of [
    `http://127.0.0.1:${await listenOn(t, silent)}/api/auth/verify`,
    'http://127.0.0.1:1/api/auth/verify',
    `${VERIFY}?redirect=wrong`,
    `${identity}/no-such-path`,
  ]) {
    const own = await startPages(verify);
    for (const { status, json, headers } of await Promise.all([
      own.options(chief),
      own.delivery(chief),
    ])) {
      assert.equal(status, 503, verify);
      assert.match(json.error.message, /sign-in service is unavailable/, verify);
      assert.ok(Number(headers.get('retry-after')) > 0);
    }
    // Tokens work without it.
    const bearer = await own.options('', { authorization: `Bearer ${AUTH_TOKEN}` });
    assert.equal(bearer.status, 200, verify);
  }
  assert.equal(givenUp, 2, 'both questions to the slow one were given up');
});

/** A sign-in service that counts what it is asked, and replies when the test says so. */
async function startVerify(t: TestContext, headers: Record<string, string> = {}, status = 401) {
  const held: Array<() => void> = [];
  const state = { asked: 0, left: 0, isHolding: false };
  const server = createServer((_request, response) => {
    state.asked += 1;
    response.on('close', () => {
      if (!response.writableFinished) state.left += 1;
    });
    const reply = () => response.writeHead(status, headers).end();
    if (state.isHolding) held.push(reply);
    else reply();
  });
  const release = () => {
    state.isHolding = false;
    for (const reply of held.splice(0)) reply();
  };
  return { state, release, verify: `http://127.0.0.1:${await listenOn(t, server)}/verify` };
}
const guess = () => `__Host-gatehouse=${randomToken()}`;

/** How long the reply to visitors without a session cookie is kept. */
const KEPT_MS = 60_000;

test('visitors without a session cookie cost the sign-in service one request a minute', async (t) => {
  const endKept = holdTimers(t, KEPT_MS);
  const { state, verify } = await startVerify(t, { location: `${ORIGIN}/login` });
  const own = await startPages(verify);
  const others = ['', 'a=b', 'session=x', '__Host-gatehouse=x', `x${guess()}`];
  for (const cookie of [...others, ...others]) {
    const { status, headers } = await own.options(cookie);
    assert.deepEqual([status, headers.get('location')], [401, `${ORIGIN}/login`], cookie);
  }
  assert.equal(state.asked, 1);
  for (const cookie of [guess(), guess()]) await own.options(cookie);
  assert.equal(state.asked, 3, 'each cookie that may be of a session is checked');
  endKept();
  for (const cookie of others) await own.options(cookie);
  assert.equal(state.asked, 4, 'the address of the sign-in page may have changed');
});

test('the sign-in service says how long to wait after wrong cookies, up to an hour', async (t) => {
  for (const [headers, seconds] of [
    [{}, '1'],
    [{ 'retry-after': '30' }, '30'],
    [{ 'retry-after': '86400' }, '3600'],
    [{ 'retry-after': 'Fri, 01 Jan 2038 00:00:00 GMT' }, '1'],
  ] as const) {
    const { state, verify } = await startVerify(t, { ...headers }, 429);
    const own = await startPages(verify);
    for (const _turn of [1, 2]) {
      const answer = await own.options('');
      assert.deepEqual([answer.status, answer.headers.get('retry-after')], [429, seconds]);
    }
    assert.equal(state.asked, 2, 'the next visitor may have another network');
  }
});

const TLS = join(import.meta.dirname, '../unit/vectors/tls');

test('over https, only a service with a trusted certificate of its name is believed', async (t) => {
  const read = (file: string) => readFileSync(join(TLS, file));
  const own = { key: read('server.key'), cert: read('server.crt') };
  const server = https.createServer(own, (_request, response) => {
    response.writeHead(200, { 'x-auth-username': 'ada' }).end();
  });
  const port = await listenOn(t, server);
  const named = await startPages(`https://localhost:${port}/verify`);
  assert.equal((await named.options(guess())).status, 503, 'nobody has signed it');
  const { request: send } = https;
  const ca = read('ca.crt');
  // As with NODE_EXTRA_CA_CERTS, which Node reads when it starts.
  t.mock.method(https, 'request', (url: string, options: object) => send(url, { ...options, ca }));
  assert.equal((await named.options(guess())).json.caller?.user, 'ada');
  const other = await startPages(`https://127.0.0.1:${port}/verify`);
  assert.equal((await other.options(guess())).status, 503, 'it is of another name');
});

test('beyond 100 wrong cookies, a network gets 429, and nothing is logged as an error', async (t) => {
  stopClock(t);
  const own = await startPages();
  for (const look of [own.options, own.delivery]) {
    let answer = await look(guess());
    for (let sent = 1; answer.status === 401; sent += 1) {
      assert.ok(sent < 1_000, 'a thousand wrong cookies were checked');
      answer = await look(guess());
    }
    assert.deepEqual([answer.status, answer.json.error.code], [429, 'too_many_requests']);
    assert.ok(Number(answer.headers.get('retry-after')) >= 1);
  }
  assert.equal((await own.options(chief)).status, 200, 'a session is not concerned');
  assert.deepEqual(own.errors(), []);
});

test('one network waits for 16 replies of the sign-in service, the others for theirs', async (t) => {
  holdTimers(t, VERIFY_MS);
  const { state, release, verify } = await startVerify(t);
  state.isHolding = true;
  const own = await startPages(verify, { TRUSTED_PROXIES: '127.0.0.1' });
  const from = (network: number) =>
    own.options(guess(), { ...OWN_PAGE, 'x-forwarded-for': `192.0.2.${network}` });
  const sixteenFrom = (network: number) => Array.from({ length: 16 }, () => from(network));
  const waiting = sixteenFrom(1);
  await until(() => state.asked === 16, 'sixteen are asked');
  const refused = await from(1);
  assert.deepEqual([refused.status, refused.json.error.code], [503, 'overloaded']);
  waiting.push(...[2, 3, 4].flatMap(sixteenFrom));
  await until(() => state.asked === 64, 'sixty-four are asked');
  assert.equal((await from(5)).status, 503);
  release();
  for (const answer of await Promise.all(waiting)) assert.equal(answer.status, 401);
  assert.equal((await from(1)).status, 401, 'the slots are free again');
});

test('a visitor who leaves ends the request to the sign-in service, without a log line', async (t) => {
  const { state, verify } = await startVerify(t);
  state.isHolding = true;
  const own = await startPages(verify);
  const headers = { cookie: guess(), ...OWN_PAGE };
  const asked = request(`${own.url.secrets}/api/store/options`, { headers });
  asked.on('error', () => {});
  asked.end();
  await until(() => state.asked === 1, 'it is asked');
  asked.destroy();
  await until(() => state.left === 1, 'the request has ended');
  state.isHolding = false;
  assert.equal((await own.options(guess())).status, 401);
  assert.deepEqual(own.errors(), []);
});

test('INBOX_USERS needs a source of users', async () => {
  await assert.rejects(
    startGatehouse({ after }, ['webhook'], databaseUrl, { INBOX_USERS: 'admin' }),
    /INBOX_USERS requires TRUSTED_USER_HEADER or SIGNIN_VERIFY_URL\./,
  );
  for (const address of ['identity:3000', 'http://identity', 'ftp://identity/x', 'http://a@b/c'])
    await assert.rejects(startPages(address), /SIGNIN_VERIFY_URL must be/, address);
});

test('each question has a connection of its own', async (t) => {
  const settings = { SHARE_PAGES: 'on', SIGNIN_VERIFY_URL: verify };
  const { secrets } = await launch(['secrets'], settings, t);
  for (let count = 0; count < 4; count += 1) {
    const { status, json, text } = await ask('GET', `${secrets}/api/store/options`, {
      headers: { cookie: COOKIE, 'sec-fetch-site': 'same-origin' },
    });
    assert.deepEqual([status, json.caller?.user], [200, 'ada'], text);
  }
  assert.equal(requests, 4, 'none was sent on a connection that had answered');
});

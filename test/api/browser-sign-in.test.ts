/** SIGNIN_VERIFY_URL: the share pages and the inbox accept a session of the identity service. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { createServer, request } from 'node:http';
import { after, test, type TestContext } from 'node:test';
import { holdTimers, stopClock } from '../support/clock.ts';
import { createDatabase } from '../support/database.ts';
import { ADMIN_PASSWORD, ask, AUTH_TOKEN, logIn, startGatehouse } from '../support/gatehouse.ts';
import { freePorts, listenOn } from '../support/ports.ts';
import { until } from '../support/until.ts';

const { url: databaseUrl, sql } = await createDatabase();
const [port = ''] = await freePorts(1);
const SIGNIN = `http://localhost:${port}`;
const { url: identity } = await startGatehouse({ after }, ['identity'], databaseUrl, {
  IDENTITY_PORT: port,
  SIGNIN_PAGES: 'on',
  SIGNIN_ORIGIN: SIGNIN,
  RETURN_ORIGINS: 'http://localhost:1',
});
const PAGES = { SHARE_PAGES: 'on', INBOX_PAGE: 'on', INBOX_USERS: 'admin' };
const pagesWith = (verify: string, more = {}) =>
  startGatehouse({ after }, ['secrets', 'webhook'], databaseUrl, {
    ...PAGES,
    SIGNIN_VERIFY_URL: verify,
    ...more,
  });
const VERIFY = `${identity.identity}/api/auth/verify`;
const { url: pages } = await pagesWith(`${VERIFY}?redirect=401`);
const OWN_PAGE = { 'sec-fetch-site': 'same-origin' };

async function signIn(username: string, password: string): Promise<string> {
  const { headers } = await ask('POST', `${identity.identity}/login`, {
    headers: {
      host: `localhost:${port}`,
      origin: SIGNIN,
      'content-type': 'application/x-www-form-urlencoded',
    },
    body: String(new URLSearchParams({ username, password, return_to: '' })),
  });
  const cookies = headers.getSetCookie().map((cookie) => cookie.split(';')[0]);
  return cookies.find((cookie) => cookie?.startsWith('__Host-gatehouse=')) ?? '';
}
const admin = await signIn('admin', ADMIN_PASSWORD);
const PASSWORD = 'a long password of a test';
await ask('POST', `${identity.identity}/api/user/`, {
  bearer: await logIn(identity.identity, 'admin', ADMIN_PASSWORD),
  body: {
    username: 'grace',
    email: 'grace@example.org',
    first_name: '',
    last_name: '',
    password: PASSWORD,
    super_admin: false,
    verified: true,
    enabled: true,
  },
});
const grace = await signIn('grace', PASSWORD);

const options = (url: string, cookie: string, headers: Record<string, string> = OWN_PAGE) =>
  ask('GET', `${url}/api/store/options`, { headers: { cookie, ...headers } });
const delivery = (url: string, cookie: string, headers: Record<string, string> = OWN_PAGE) =>
  ask('GET', `${url}/events/delivery`, { headers: { cookie, ...headers } });

test('a session opens the share pages for every user, the inbox for INBOX_USERS', async () => {
  for (const [cookie, user] of [
    [admin, 'admin'],
    [grace, 'grace'],
  ] as const) {
    const { status, json } = await options(pages.secrets, cookie);
    assert.deepEqual([status, json.caller], [200, { role: 'sender', user }]);
  }
  const opened = await delivery(pages.webhook, admin);
  assert.deepEqual([opened.status, opened.json.user], [200, 'admin']);
  assert.equal((await delivery(pages.webhook, grace)).status, 401);
  const paused = await ask('POST', `${pages.webhook}/events/pause`, {
    headers: { cookie: admin, ...OWN_PAGE },
  });
  assert.deepEqual([paused.status, paused.json.paused_by], [200, 'user:admin']);
  await ask('POST', `${pages.webhook}/events/resume`, {
    headers: { cookie: admin, ...OWN_PAGE },
  });
});

test('without a session, the reply names the sign-in page', async () => {
  for (const cookie of ['', '__Host-gatehouse=wrong', 'session=x']) {
    for (const { status, headers } of [
      await options(pages.secrets, cookie),
      await delivery(pages.webhook, cookie),
    ]) {
      assert.equal(status, 401, cookie);
      assert.equal(headers.get('location'), `${SIGNIN}/login`, cookie);
    }
  }
});

test('a long cookie of another program does not sign a user out', async () => {
  const others = `session=${'x'.repeat(4_000)}; other=${'y'.repeat(4_000)}`;
  for (const cookie of [`${others}; ${grace}`, `${grace}; ${others}`]) {
    const { status, json } = await options(pages.secrets, cookie);
    assert.deepEqual([status, json.caller], [200, { role: 'sender', user: 'grace' }]);
  }
  const twice = `${grace}; ${grace}${'x'.repeat(4_000)}`;
  assert.equal((await options(pages.secrets, twice)).status, 401);
});

test('a request that no page of this host sent is not signed in by a cookie', async () => {
  for (const headers of [
    {},
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'none' },
    { origin: SIGNIN },
  ]) {
    const { status, headers: received } = await options(pages.secrets, admin, headers);
    assert.deepEqual([status, received.get('location')], [401, null], JSON.stringify(headers));
    assert.equal((await delivery(pages.webhook, admin, headers)).status, 401);
  }
});

test('a token takes precedence over a cookie', async () => {
  const right = await options(pages.secrets, grace, {
    ...OWN_PAGE,
    authorization: `Bearer ${AUTH_TOKEN}`,
  });
  assert.deepEqual(right.json.caller, { role: 'operator', user: null });
  const wrong = await options(pages.secrets, grace, {
    ...OWN_PAGE,
    authorization: 'Bearer wrong',
  });
  assert.equal(wrong.status, 401);
});

test('a session that ended opens nothing at the next request', async () => {
  const own = await signIn('grace', PASSWORD);
  assert.equal((await options(pages.secrets, own)).status, 200);
  await sql`update identity.sessions set deleted_at = now()
    where created_at = (select max(created_at) from identity.sessions)`;
  assert.equal((await options(pages.secrets, own)).status, 401);
});

test('SHARE_USERS and INBOX_USERS admit members of a group, from the next request on', async () => {
  const lists = { SHARE_USERS: 'group:writers', INBOX_USERS: 'group:ops,admin' };
  const { url } = await pagesWith(`${VERIFY}?redirect=401`, lists);
  const set = async (groups: readonly string[]) => {
    const bearer = await logIn(identity.identity, 'admin', ADMIN_PASSWORD);
    const [row] = await sql`select id from identity.users where username = 'grace'`;
    const answer = await ask('PATCH', `${identity.identity}/api/user/${row?.id}`, {
      bearer,
      body: { groups },
    });
    assert.equal(answer.status, 200, answer.text);
  };
  const statuses = async () => [
    (await options(url.secrets, grace)).status,
    (await delivery(url.webhook, grace)).status,
  ];
  assert.deepEqual(await statuses(), [401, 401]);
  await set(['writers']);
  assert.deepEqual(await statuses(), [200, 401]);
  await set(['ops', 'writers']);
  assert.deepEqual(await statuses(), [200, 200]);
  await set([]);
  assert.deepEqual(await statuses(), [401, 401]);
});

test('a rule of the address applies', async () => {
  const { url } = await pagesWith(`${VERIFY}?redirect=401&require=super_admin`);
  assert.equal((await options(url.secrets, admin)).status, 200);
  assert.equal((await options(url.secrets, grace)).status, 401);
});

test('SHARE_ANYONE admits who is not signed in, and names who is', async () => {
  const { url } = await pagesWith(`${VERIFY}?redirect=401`, { SHARE_ANYONE: 'on' });
  assert.equal((await options(url.secrets, '')).json.caller.role, 'anyone');
  assert.equal((await options(url.secrets, grace)).json.caller.user, 'grace');
});

/** How long the pages wait for the sign-in service. */
const VERIFY_MS = 5_000;

test('an identity service that is down, slow or wrong opens nothing: 503', async (t) => {
  const endWaits = holdTimers(t, VERIFY_MS);
  let givenUp = 0;
  const silent = createServer(() => {
    givenUp += endWaits();
  });
  const port = await listenOn(t, silent);
  for (const verify of [
    `http://127.0.0.1:${port}/api/auth/verify`,
    'http://127.0.0.1:1/api/auth/verify',
    `${VERIFY}?redirect=wrong`,
    `${identity.identity}/no-such-path`,
  ]) {
    const { url } = await pagesWith(verify);
    const replies = await Promise.all([options(url.secrets, admin), delivery(url.webhook, admin)]);
    for (const { status, json, headers } of replies) {
      assert.equal(status, 503, verify);
      assert.match(json.error.message, /sign-in service is unavailable/, verify);
      assert.ok(Number(headers.get('retry-after')) > 0);
    }
    // Tokens work without it.
    const bearer = await options(url.secrets, '', { authorization: `Bearer ${AUTH_TOKEN}` });
    assert.equal(bearer.status, 200, verify);
  }
  assert.equal(givenUp, 2, 'both questions to the slow one were given up');
});

/** A sign-in service that counts what it is asked, and replies when the test says so. */
async function startVerify(t: TestContext, status = 401, headers: Record<string, string> = {}) {
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
  const port = await listenOn(t, server);
  const release = () => {
    state.isHolding = false;
    for (const reply of held.splice(0)) reply();
  };
  return { state, release, verify: `http://127.0.0.1:${port}/verify` };
}
const guess = () => `__Host-gatehouse=${randomBytes(32).toString('base64url')}`;

test('visitors without a session cookie cost the sign-in service one request', async (t) => {
  const { state, verify } = await startVerify(t, 401, { location: `${SIGNIN}/login` });
  const { url } = await pagesWith(verify);
  const others = ['', 'a=b', 'session=x', '__Host-gatehouse=x', `x${guess()}`];
  for (const cookie of [...others, ...others]) {
    const { status, headers } = await options(url.secrets, cookie);
    assert.deepEqual([status, headers.get('location')], [401, `${SIGNIN}/login`], cookie);
  }
  assert.equal(state.asked, 1);
  for (const cookie of [guess(), guess()]) await options(url.secrets, cookie);
  assert.equal(state.asked, 3, 'each cookie that may be of a session is checked');
});

test('beyond 100 wrong cookies, a network gets 429, and nothing is logged as an error', async (t) => {
  stopClock(t);
  const { url, log } = await pagesWith(`${VERIFY}?redirect=401`);
  for (const ask of [() => options(url.secrets, guess()), () => delivery(url.webhook, guess())]) {
    let answer = await ask();
    for (let sent = 1; answer.status === 401; sent += 1) {
      assert.ok(sent < 1_000, 'a thousand wrong cookies were checked');
      answer = await ask();
    }
    assert.deepEqual([answer.status, answer.json.error.code], [429, 'too_many_requests']);
    assert.ok(Number(answer.headers.get('retry-after')) >= 1);
  }
  assert.equal((await options(url.secrets, admin)).status, 200, 'a session is not concerned');
  assert.deepEqual(
    log().filter(({ level }) => level === 'error'),
    [],
  );
});

test('one network waits for 16 replies of the sign-in service, the others for theirs', async (t) => {
  holdTimers(t, VERIFY_MS);
  const { state, release, verify } = await startVerify(t);
  state.isHolding = true;
  const { url } = await pagesWith(verify, { TRUSTED_PROXIES: '127.0.0.1' });
  const from = (address: string) =>
    options(url.secrets, guess(), { ...OWN_PAGE, 'x-forwarded-for': address });
  const waiting = Array.from({ length: 16 }, () => from('192.0.2.1'));
  await until(() => state.asked === 16, 'sixteen are asked');
  const refused = await from('192.0.2.1');
  assert.deepEqual([refused.status, refused.json.error.code], [503, 'overloaded']);
  for (let network = 2; network <= 4; network += 1)
    waiting.push(...Array.from({ length: 16 }, () => from(`192.0.2.${network}`)));
  await until(() => state.asked === 64, 'sixty-four are asked');
  assert.equal((await from('192.0.2.5')).status, 503);
  release();
  for (const answer of await Promise.all(waiting)) assert.equal(answer.status, 401);
  assert.equal((await from('192.0.2.1')).status, 401, 'the slots are free again');
});

test('a visitor who leaves ends the request to the sign-in service, without a log line', async (t) => {
  const { state, verify } = await startVerify(t);
  state.isHolding = true;
  const { url, log } = await pagesWith(verify);
  const asked = request(`${url.secrets}/api/store/options`, {
    headers: { cookie: guess(), ...OWN_PAGE },
  });
  asked.on('error', () => {});
  asked.end();
  await until(() => state.asked === 1, 'it is asked');
  asked.destroy();
  await until(() => state.left === 1, 'the request has ended');
  state.isHolding = false;
  assert.equal((await options(url.secrets, guess())).status, 401);
  assert.deepEqual(
    log().filter(({ level }) => level === 'error'),
    [],
  );
});

test('INBOX_USERS needs a source of users', async () => {
  await assert.rejects(
    startGatehouse({ after }, ['webhook'], databaseUrl, { INBOX_USERS: 'admin' }),
    /INBOX_USERS requires TRUSTED_USER_HEADER or SIGNIN_VERIFY_URL\./,
  );
  for (const address of ['identity:3000', 'http://identity', 'ftp://identity/x', 'http://a@b/c']) {
    await assert.rejects(pagesWith(address), /SIGNIN_VERIFY_URL must be/, address);
  }
});

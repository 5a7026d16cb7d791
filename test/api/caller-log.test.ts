/**
 * Who a request line is about, what the log says of refused credentials, and `traceparent` (W3C
 * Trace Context): a valid trace id, and nothing else of the header.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { after, test } from 'node:test';
import { Failure } from '../../src/platform/http/route/errors.ts';
import { createDatabase } from '../support/database.ts';
import {
  ask,
  AUTH_TOKEN,
  launch,
  logIn,
  startGatehouse,
  WEBHOOK_TOKEN,
} from '../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN } from '../support/inbox.ts';
import { get, post, startListener } from '../support/listener.ts';
import { startPortal } from '../support/portal.ts';
import { listenOn } from '../support/ports.ts';
import { addToken, openWebhook, SIGNING_SECRETS, WEBHOOK_SECRET } from '../support/senders.ts';
import { exchange } from '../support/socket.ts';
import { until } from '../support/until.ts';

const { url, log, sql, databaseUrl } = await launch(['identity', 'secrets', 'webhook'], {
  WEBHOOK_SECRET,
});
await addOperator(sql);
const portal = await startPortal({ after }, { COOKIE_DOMAIN: '' });
const EVENT = { event: 'a', data: { page_id: 'b' } };

/** The log lines of one request, without what every request line has. */
async function linesOf(
  method: string,
  target: string,
  options: Parameters<typeof ask>[2] = {},
  written = log,
) {
  const id = randomUUID();
  await ask(method, target, { ...options, headers: { ...options.headers, 'x-request-id': id } });
  return linesWith(id, written);
}

async function linesWith(id: string, written: typeof log) {
  const own = () => written().filter((line) => line.request_id === id);
  await until(() => own().some(({ message }) => message === 'request'), 'the request line');
  return own();
}

const idsOf = (line: Record<string, unknown> | undefined) =>
  Object.fromEntries(
    ['user_id', 'session_id', 'key_id', 'token_id'].flatMap((name) =>
      line?.[name] === undefined ? [] : [[name, line[name]]],
    ),
  );

const listener = await startListener({ after }, [
  get('/fine', async () => ({ data: 'fine' })),
  post('/refused', {
    security: ['token'],
    errors: ['unauthorized'],
    check: async () => new Failure('unauthorized', { credential: 'token' }),
  }),
  get('/broken', async () => Promise.reject(new Error('broken'))),
]);

test('identity: a request line has the ids of user and session, or of user and key', async () => {
  const session = await logIn(url.identity);
  const [user] =
    await sql`select u.id as user_id, s.id as session_id from identity.users u join identity.sessions s on s.user_id = u.id`;
  const [bySession] = await linesOf('GET', `${url.identity}/api/test/`, { bearer: session });
  assert.deepEqual(idsOf(bySession), { user_id: user?.user_id, session_id: user?.session_id });
  const created = await ask('POST', `${url.identity}/api/key/`, { bearer: session, body: {} });
  const [byKey] = await linesOf('GET', `${url.identity}/api/test/`, {
    bearer: created.json.data.key,
  });
  assert.deepEqual(idsOf(byKey), { user_id: user?.user_id, key_id: created.json.data.id });
  const [denied] = await linesOf('GET', `${url.identity}/api/user/${randomUUID()}?x=1`, {
    bearer: session,
  });
  assert.deepEqual(
    [denied?.status, idsOf(denied).user_id],
    [400, user?.user_id],
    'also of a request that fails',
  );
});

test("identity: the request line has the ids of a caller who may not see an administrators' page", async () => {
  const { id, host: cookie } = await portal.addSignedIn();
  const [session] = await portal.sql`select user_id, id as session_id from identity.sessions
    where user_id = ${id}`;
  const page = `${portal.identity}/account/users`;
  const [line] = await linesOf('GET', page, { headers: { cookie } }, portal.log);
  assert.deepEqual([line?.status, idsOf(line)], [403, { ...session }]);
});

test('identity: verify with the pages logs callers, counts refused credentials as without', async () => {
  const { sql: stored, admin, log: written } = portal;
  const verify = `${portal.identity}/api/auth/verify`;
  const [known] = await stored`select user_id, id as session_id from identity.sessions
    where user_id = ${admin.id}`;
  const [bySession, ...others] = await linesOf('GET', verify, { bearer: admin.token }, written);
  assert.deepEqual([bySession?.status, idsOf(bySession), others.length], [200, { ...known }, 0]);
  const { id, host: cookie } = await portal.addSignedIn();
  const [line] = await linesOf('GET', verify, { headers: { cookie } }, written);
  assert.deepEqual([line?.status, idsOf(line).user_id], [200, id]);
  const wrong = `__Host-gatehouse=session:${randomUUID()}`;
  for (const [target, options, status] of [
    [verify, { bearer: `session:${SESSION}` }, 401],
    [verify, { headers: { cookie: wrong } }, 401],
    [`${portal.identity}/account`, { headers: { cookie: wrong } }, 303],
  ] as const) {
    const lines = await linesOf('GET', target, options, written);
    const found = lines.find(({ message }) => message === 'request')?.status;
    assert.deepEqual(
      [refusedOf(lines).map(({ credential }) => credential), found],
      [['session'], status],
      target,
    );
  }
  assert.deepEqual(refusedOf(await linesOf('GET', verify, {}, written)), [], 'no credential');
  const requestId = randomUUID();
  // A browser that is sent to the sign-in page.
  const head = [
    'GET /api/auth/verify?redirect=302 HTTP/1.1',
    'Host: gatehouse',
    `X-Request-Id: ${requestId}`,
    `Cookie: ${wrong}`,
    'Sec-Fetch-Mode: navigate',
    'Sec-Fetch-Dest: document',
  ];
  assert.equal((await exchange(portal.identity, head)).status, 303);
  assert.equal(refusedOf(await linesWith(requestId, written)).length, 1);
});

test('webhook: a request line has the id of the token', async () => {
  const tokens = await sql`select id, role from webhook.tokens`;
  const idOf = (role: string) => ({ token_id: tokens.find((one) => one.role === role)?.id });
  const [received] = await linesOf('POST', `${url.webhook}/webhook?token=${WEBHOOK_TOKEN}`, {
    body: EVENT,
  });
  assert.deepEqual(idsOf(received), idOf('sender'));
  const [listed] = await linesOf('GET', `${url.webhook}/events`, { bearer: OPERATOR_TOKEN });
  assert.deepEqual(idsOf(listed), idOf('operator'));
});

/** Well-formed, and wrong. */
const SESSION = Buffer.from(`session:${randomUUID()}`).toString('base64');
const refusedOf = (lines: ReadonlyArray<Record<string, unknown>>) =>
  lines.filter(({ message }) => message === 'credential refused');

test('a refused credential is logged as a warning and counted by kind; a missing one is not', async () => {
  const { token } = await addToken(
    openWebhook({ after: (fn) => after(fn) }, databaseUrl),
    'github',
    SIGNING_SECRETS.github,
  );
  const wrong = [
    ['identity', 'GET', '/api/test/', { bearer: `session:${SESSION}` }, 'session'],
    [
      'identity',
      'GET',
      '/api/auth/verify',
      { headers: { cookie: `session=session:${randomUUID()}` } },
      'session',
    ],
    ['identity', 'GET', '/api/key/', { headers: { 'x-api-key': 'key:wrong' } }, 'key'],
    ['identity', 'POST', '/api/auth/session', { body: { session: SESSION } }, 'session'],
    ['secrets', 'GET', '/api/store', { bearer: `${AUTH_TOKEN}x` }, 'token'],
    ['webhook', 'POST', '/webhook?token=wrong', { body: EVENT }, 'token'],
    ['webhook', 'GET', '/events', { bearer: WEBHOOK_TOKEN }, 'token'],
    [
      'webhook',
      'POST',
      '/webhook',
      { bearer: token, body: {}, headers: { 'x-github-event': 'push' } },
      'signature',
    ],
  ] as const;
  for (const [service, method, path, options, credential] of wrong) {
    const [line, ...others] = refusedOf(await linesOf(method, url[service] + path, options));
    assert.deepEqual(
      [line?.level, line?.service, line?.credential, line?.ip, others.length],
      ['warn', service, credential, '127.0.0.1', 0],
      path,
    );
    assert.ok(String(line?.route).startsWith(`${method} /`));
  }
  for (const [service, path] of [
    ['identity', '/api/test/'],
    ['identity', '/api/auth/verify'],
    ['secrets', '/api/store'],
    ['webhook', '/events'],
  ] as const) {
    assert.deepEqual(refusedOf(await linesOf('GET', url[service] + path)), [], path);
  }
  const { text } = await ask('GET', `${url.metrics}/metrics`);
  for (const [labels, count] of [
    ['service="identity",credential="session"', 3],
    ['service="identity",credential="key"', 1],
    ['service="secrets",credential="token"', 1],
    ['service="webhook",credential="token"', 2],
  ] as const) {
    assert.ok(text.includes(`gatehouse_credentials_refused_total{${labels}} ${count}\n`), labels);
  }
  const secretsSent = [SESSION, 'key:wrong', `${AUTH_TOKEN}x`, WEBHOOK_TOKEN, OPERATOR_TOKEN];
  for (const secret of secretsSent) assert.ok(!JSON.stringify(log()).includes(secret));
});

test('webhook: an event is followed by its id, from acceptance to its delivery', async (t) => {
  const target = createServer((_request, response) => response.end());
  const port = await listenOn(t, target);
  const got = once(target, 'request');
  const own = await startGatehouse(t, ['webhook'], (await createDatabase(t)).url, {
    WEBHOOK_FORWARD_URL: `http://127.0.0.1:${port}/`,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
  });
  const requestId = randomUUID();
  const send = () =>
    ask('POST', `${own.url.webhook}/webhook`, {
      bearer: WEBHOOK_TOKEN,
      body: EVENT,
      headers: { 'x-request-id': requestId, 'webhook-id': 'delivery-7' },
    });
  const { id } = (await send()).json;
  const [request]: IncomingMessage[] = await got;
  assert.equal(request?.headers['x-request-id'], requestId);
  const linesAbout = (message: string) =>
    own.log().filter((line) => line.message === message && line.event_id === id);
  await until(() => linesAbout('event delivered').length === 1, 'the delivery is logged');
  assert.equal(linesAbout('event delivered')[0]?.request_id, requestId);
  assert.equal(linesAbout('event delivered')[0]?.attempt, 1);
  await send();
  const accepted = linesAbout('request').map((line) => [line.delivery_id, line.outcome]);
  assert.deepEqual(accepted, [
    ['delivery-7', 'accepted'],
    ['delivery-7', 'duplicate'],
  ]);
});

// --- Trace Context

const ID = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const VALID = `00-${ID}-${PARENT}-01`;

/** @returns the trace ids of all log lines about one request */
async function traced(path: string, traceparent: string) {
  const requestId = `request-${Math.random().toString(36).slice(2)}`;
  await ask(path === '/refused' ? 'POST' : 'GET', `${listener.url}${path}`, {
    headers: { traceparent, 'x-request-id': requestId },
  });
  const lines = () => listener.lines().filter((line) => line.request_id === requestId);
  // It is written after the reply.
  await until(() => lines().some(({ message }) => message === 'request'), 'its line');
  return lines().map(({ trace_id }) => trace_id);
}

test('a valid trace id is in every line of the listener about the request', async () => {
  assert.deepEqual(await traced('/fine', VALID), [ID]);
  assert.deepEqual(await traced('/refused', VALID), [ID, ID]);
  assert.deepEqual(await traced('/broken', VALID), [ID, ID]);
  assert.deepEqual(await traced('/nowhere', VALID), [ID]);
  const later = `cc-${ID}-${PARENT}-01-what-the-future-brings`;
  assert.deepEqual(await traced('/fine', later), [ID], 'a later version may have more members');
});

const INVALID = [
  '',
  ID,
  `ff-${ID}-${PARENT}-01`,
  `00-${ID}-${PARENT}-1`,
  `00-${ID}-${PARENT}-0g`,
  `00-${ID}-${PARENT}-01-more`,
  `01-${ID}-${PARENT}-01more`,
  `00-${ID.toUpperCase()}-${PARENT}-01`,
  `00-${'0'.repeat(32)}-${PARENT}-01`,
  `00-${ID}-${'0'.repeat(16)}-01`,
  `00-${ID}0-${PARENT}-01`,
  `${VALID}, ${VALID}`,
  `x${VALID}`,
];
test('any other value is ignored', async () => {
  for (const value of INVALID) assert.deepEqual(await traced('/fine', value), [undefined], value);
});

/**
 * POST /api/auth/login and /api/auth/session: requests of pages of other sites, as browsers send
 * them; tokens and their forms, overload, and codes. No login tells who exists, neither by the
 * answer nor by the work that it takes.
 */
import assert from 'node:assert/strict';
import { createHook } from 'node:async_hooks';
import { after, test } from 'node:test';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { factorsOf } from '../../../support/factors.ts';
import {
  ADMIN_PASSWORD,
  ask,
  assertStatus,
  launch,
  logIn,
  startGatehouse,
} from '../../../support/gatehouse.ts';
import { PORTAL, startPortal } from '../../../support/portal.ts';
import { KINDS, startRejecting } from '../../../support/rejected-logins.ts';
import { exchange } from '../../../support/socket.ts';
import { until } from '../../../support/until.ts';
import {
  addUser,
  assertError,
  assertSession,
  assertSuccess,
  openIdentity,
  PASSWORD,
  sessionOf,
} from '../../../support/users.ts';

const { identity, metrics, databaseUrl, log, holdHashes, sql } = await launch(['identity'], {
  TRUSTED_PROXIES: '127.0.0.7',
  PASSWORD_HASHES: '1',
});
const password = 'ﬁne pâssword';
await addUser(openIdentity({ after }, databaseUrl), 'Émile', {
  email: 'emile@example.org',
  password,
});

const { tryOne } = await startRejecting({ logN: 4, r: 8, p: 1 });

const own = new URL(identity).host;

/** One login with exactly these headers. */
function tryLogin(
  password: string,
  headers: readonly string[],
  { from = '127.0.0.1', host = own, target = '/api/auth/login' } = {},
) {
  const body = JSON.stringify({ username: 'admin', password });
  const head = [`POST ${target} HTTP/1.1`, `Host: ${host}`, `Content-Length: ${body.length}`];
  return exchange(identity, [...head, ...headers], body, from);
}

const FOREIGN: ReadonlyArray<readonly string[]> = [
  ['Sec-Fetch-Site: cross-site', `Origin: http://${own}`],
  ['Sec-Fetch-Site: same-site', 'Origin: https://neighbor.gatehouse.test'],
  ['Sec-Fetch-Site: same-origin, cross-site'],
  ['Origin: https://evil.example'],
  ['Origin: null'],
  ['Origin: garbage'],
  ['Origin: http://127.0.0.1:1'],
  ['Origin: https://evil.example', 'X-Forwarded-Host: evil.example'],
];

test('a login from a page of another site gets 403 and does not count as an attempt', async () => {
  for (const headers of FOREIGN) {
    const { status, json } = await tryLogin('wrong', headers);
    assert.deepEqual([status, json.error.code], [403, 'cross_site'], headers.join(', '));
  }
  assert.equal((await sql`select from identity.throttles`).length, 0, 'no attempt is stored');
  const { text } = await ask('GET', `${metrics}/metrics`);
  const series = 'service="identity",route="POST /api/auth/login",reason="cross_site"';
  const counted = `\ngatehouse_requests_refused_total{${series}} ${FOREIGN.length}\n`;
  assert.ok(text.includes(counted), text);
});

const ALLOWED: ReadonlyArray<
  readonly [headers: readonly string[], more?: Parameters<typeof tryLogin>[2]]
> = [
  [[]],
  [['Sec-Fetch-Site: same-origin', 'Origin: null']],
  [['Sec-Fetch-Site: none']],
  [[`Origin: http://${own}`]],
  // Behind a proxy that terminates TLS, with its name in Host or in X-Forwarded-Host.
  [['Origin: https://id.example'], { host: 'id.example' }],
  [['Origin: https://id.example'], { host: 'ID.example:443' }],
  [['Origin: https://id.example:8443'], { host: 'id.example:8443' }],
  [['Origin: https://id.example', 'X-Forwarded-Host: id.example'], { from: '127.0.0.7' }],
  // The host of an absolute target takes the place of the header.
  [
    ['Origin: https://id.example'],
    { host: 'evil.example', target: 'http://id.example/api/auth/login' },
  ],
];

test('programs, pages of the same origin and proxies are served', async () => {
  for (const [headers, more] of ALLOWED) {
    const { status } = await tryLogin(ADMIN_PASSWORD, headers, more);
    assert.equal(status, 200, JSON.stringify([headers, more]));
  }
  const evil = await tryLogin('', ['Origin: https://id.example'], { host: 'evil.example' });
  assert.equal(evil.status, 403);
});

// --- Tokens, overload, and codes

const login = (body: object, headers = {}) =>
  ask('POST', `${identity}/api/auth/login`, { body, headers });

test('a login answers with a new session token and nothing else, whatever else it sends', async () => {
  const tokens = new Set<string>();
  for (const [body, headers] of [
    [{ username: 'ÉMILE', password, remember: true }, {}],
    [
      { username: 'e\u0301mile', password: 'fine pa\u0302ssword' },
      { 'content-type': 'text/plain' },
    ],
  ] as const) {
    const answer = await login(body, headers);
    assertSuccess(answer);
    assert.deepEqual(Object.keys(answer.json.data), ['session']);
    tokens.add(answer.json.data.session);
  }
  assert.equal(tokens.size, 2);
  const answer = await ask('POST', `${identity}/api/auth/session`, {
    body: { session: [...tokens][0] },
  });
  assertSuccess(answer);
  assertSession(answer.json.data);
  const { revoked, logged_out, deleted_at, user } = answer.json.data;
  assert.deepEqual([revoked, logged_out, deleted_at], [false, false, null]);
  assert.deepEqual([user.username, user.email], ['Émile', 'emile@example.org']);
});

test('a session token is taken in every form, as bearer, in a query and in a body, and nothing else is', async () => {
  const bearer = await logIn(identity);
  const token = await logIn(identity);
  const { id } = await sessionOf(identity, token);
  const base64 = btoa(token);
  const asBearer = (form: string) => ask('GET', `${identity}/api/test/`, { bearer: form });
  const asQuery = (form: string) =>
    ask('GET', `${identity}/api/session/info?session=${form}`, { bearer });
  const asBody = (session: string) =>
    ask('POST', `${identity}/api/auth/session`, { body: { session } });
  // Of Base64, the padding need not be escaped in a query.
  for (const form of [token, base64, base64.replace('=', ''), `session:${base64}`]) {
    assertStatus(await asBearer(form), 200);
    for (const answer of [await asQuery(form), await asBody(form)])
      assert.equal(answer.json.data.id, id, form);
  }
  // `test/unit/identity/token.test.ts` has every other form.
  for (const form of [id, `session:${id}`, btoa(base64), `${token}0`]) {
    assertError(await asBearer(form), 401, 'unauthorized');
    assertError(await asQuery(form), 400, 'invalid_session_token');
    assertError(await asBody(form), 401, 'invalid_session');
  }
});

test('logins beyond the hashing queue are 503, while others and known networks are served', async () => {
  const bearer = await logIn(identity);
  const release = holdHashes();
  let answered = 0;
  // Each for another account, so that none is throttled.
  const rush = Array.from({ length: 60 }, (_, number) =>
    login({ username: `nobody-${number}`, password: 'whatever it is' }).finally(() => {
      answered += 1;
    }),
  );
  // One place and 32 seats.
  await until(() => answered === 60 - 33, 'all others are refused');
  for (const path of ['/api/test/', '/api/user/', '/readyz', '/livez'])
    assertStatus(await ask('GET', identity + path, { bearer }), 200, path);
  // From this network, the administrator has logged in before.
  const owner = logIn(identity);
  release();
  await owner;
  const answers = await Promise.all(rush);
  const refused = answers.filter(({ status }) => status === 503);
  for (const answer of refused) assertError(answer, 503, 'overloaded');
  for (const answer of answers.filter(({ status }) => status !== 503))
    assertError(answer, 401, 'invalid_credentials');
  assert.equal(refused.length, 60 - 33);
  // The log writes a few lines, then one that counts the others.
  const accounted = () =>
    log()
      .filter(({ message }) => message === 'request rejected: overloaded')
      .reduce((sum, { omitted }) => sum + Number(omitted ?? 1), 0);
  await until(() => accounted() === refused.length);
  const { text } = await ask('GET', `${metrics}/metrics`);
  const series =
    'gatehouse_requests_refused_total{service="identity",route="POST /api/auth/login",reason="overloaded"}';
  assert.ok(text.includes(`\n${series} ${refused.length}\n`), 'the metrics count every one');
});

test('without pages, a code needs IDENTITY_SECRET, and a reply and the log say so', async (t) => {
  const portal = await startPortal(t);
  const { enrol, forgetSteps, stepNow } = factorsOf(portal);
  const { id, username } = await portal.add();
  const { secret } = await enrol(username);
  const serve = async (environment: Readonly<Record<string, string>>) => {
    const service = await startGatehouse(t, ['identity'], portal.databaseUrl, environment);
    const outcomeOf = async (otp?: string) => {
      await forgetSteps(id);
      const body = { username, password: PASSWORD, otp };
      const answer = await ask('POST', `${service.url.identity}/api/auth/login`, { body });
      return [answer.status, answer.json.error?.code ?? answer.json.data.session.slice(0, 8)];
    };
    return { ...service, outcomeOf };
  };
  const { IDENTITY_SECRET } = PORTAL;
  const withSecret = await serve({ IDENTITY_SECRET });
  assert.deepEqual(await withSecret.outcomeOf(totpCode(secret, await stepNow())), [
    200,
    'session:',
  ]);
  assert.deepEqual(await withSecret.outcomeOf('000000'), [401, 'invalid_code']);
  const without = await serve({});
  assert.deepEqual(await without.outcomeOf(totpCode(secret, await stepNow())), [
    503,
    'key_unknown',
  ]);
  for (const { outcomeOf } of [withSecret, without])
    assert.deepEqual(await outcomeOf(), [401, 'second_factor_needed']);
  const warned = without
    .log()
    .filter(({ message }) => /users with a second factor/.test(`${message}`));
  assert.equal(warned.length, 1);
});

// --- Who exists

let hashes = 0;
const watching = createHook({
  init(_id, type) {
    if (type === 'SCRYPTREQUEST') hashes += 1;
  },
}).enable();
after(() => {
  watching.disable();
});

test('body and headers are the same for all but the request id and the date, after one hash', async () => {
  const seen = new Set<string>();
  for (const [what, names, password] of KINDS) {
    hashes = 0;
    const answer = await tryOne(names, password, 0);
    assert.equal(hashes, 1, what);
    assertError(answer, 401, 'invalid_credentials');
    const { request_id: requestId } = answer.json._meta;
    const headers = [...answer.headers].filter(([name]) => name !== 'date');
    const told = JSON.stringify([answer.status, headers, answer.text]).replaceAll(
      requestId,
      'REQUEST',
    );
    seen.add(told);
    assert.equal(seen.size, 1, `${what}: ${told}`);
  }
});

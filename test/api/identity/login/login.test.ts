/**
 * POST /api/auth/login and /api/auth/session: requests of pages of other sites, as browsers send
 * them; tokens and their forms, overload, and codes. No login tells who exists, neither by the
 * answer nor by the work that it takes.
 */
import assert from 'node:assert/strict';
import { createHook } from 'node:async_hooks';
import { pbkdf2Sync } from 'node:crypto';
import { after, test } from 'node:test';
import { readForeignHash } from '../../../../src/identity/imported-hashes.ts';
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

const { identity, databaseUrl, log, holdHashes, sql } = await launch(['identity'], {
  TRUSTED_PROXIES: '127.0.0.7',
  PASSWORD_HASHES: '1',
});
const password = 'ﬁne pâssword';
await addUser(openIdentity({ after }, databaseUrl), 'Émile', {
  email: 'emile@example.org',
  password,
});

const rejecting = await startRejecting({ logN: 4, r: 8, p: 1 });
const { tryOne } = rejecting;

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

test('a login from a page of another site gets 403 and does not count; others are served', async () => {
  for (const headers of FOREIGN) {
    const { status, json } = await tryLogin('wrong', headers);
    assert.deepEqual([status, json.error.code], [403, 'cross_site'], headers.join(', '));
  }
  assert.equal((await sql`select from identity.throttles`).length, 0, 'no attempt is stored');
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
  assert.equal(answer.json.data.user.username, 'Émile');
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
  const lines = () => log().filter(({ message }) => message === 'request rejected: overloaded');
  await until(() => lines().length > 0);
  assert.ok(lines().length < refused.length, 'a line for each');
});

test('without pages, a code needs IDENTITY_SECRET, and a reply and the log say so', async (t) => {
  const portal = await startPortal(t);
  const { addEnrolled, freshCode } = factorsOf(portal);
  const user = await addEnrolled();
  const { IDENTITY_SECRET } = PORTAL;
  for (const [environment, right, wrong, warnings] of [
    [{ IDENTITY_SECRET }, 200, 'invalid_code', 0],
    [{}, 'key_unknown', 'key_unknown', 1],
  ] as const) {
    const { url, log } = await startGatehouse(t, ['identity'], portal.databaseUrl, environment);
    const outcomeOf = async (otp?: string) => {
      const body = { username: user.username, password: PASSWORD, otp };
      const { status, json } = await ask('POST', `${url.identity}/api/auth/login`, { body });
      return json.error?.code ?? status;
    };
    assert.equal(await outcomeOf(await freshCode(user)), right);
    assert.equal(await outcomeOf('000000'), wrong);
    assert.equal(await outcomeOf(), 'second_factor_needed');
    const warned = log().filter(({ message }) => /users with a second factor/.test(`${message}`));
    assert.equal(warned.length, warnings);
  }
});

// --- Who exists

test('a failure differs by nothing but its request id and date, and costs the same hashes', async (t) => {
  let hashes: string[] = [];
  const watching = createHook({
    init(_id, type) {
      if (!/^(SCRYPT|PBKDF2)REQUEST$/.test(type)) return;
      // The driver hashes its password for each new connection.
      if (!new Error().stack?.includes('node_modules/postgres')) hashes.push(type);
    },
  }).enable();
  t.after(() => watching.disable());
  const seen = new Set<string>();
  const assertAlike = async (...costs: string[]) => {
    for (const [what, names, password] of KINDS) {
      hashes = [];
      const answer = await tryOne(names, password, 0);
      assert.deepEqual(hashes.sort(), costs, what);
      assertError(answer, 401, 'invalid_credentials');
      const { request_id: requestId } = answer.json._meta;
      const headers = [...answer.headers].filter(([name]) => name !== 'date');
      const told = JSON.stringify([answer.status, headers, answer.text]);
      seen.add(told.replaceAll(requestId, 'REQUEST'));
      assert.equal(seen.size, 1, `${what}: ${told}`);
    }
  };
  await assertAlike('SCRYPTREQUEST');
  // While there are hashes of other programs: one of ours and one of theirs, whoever has which.
  const salt = 'seasalt8';
  const digest = pbkdf2Sync(PASSWORD, salt, 1_000, 32, 'sha256').toString('base64');
  const hash = readForeignHash(`pbkdf2_sha256$1000$${salt}$${digest}`);
  assert.ok(typeof hash === 'string');
  await rejecting.sql`update identity.users set password_hash = ${hash}
    where username like 'guarded-%' or username like 'disabled-%'`;
  await assertAlike('PBKDF2REQUEST', 'SCRYPTREQUEST');
  const kept = await rejecting.sql`select from identity.users where password_hash = ${hash}`;
  assert.equal(kept.length, 8, 'not those of disabled users');
});

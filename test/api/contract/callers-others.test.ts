/**
 * Who may call each row of secrets and of webhook, open each sign-in page and send each form: the
 * roles and the policy that the documents promise. The services have their own.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import { createSessionToken } from '../../../src/identity/token.ts';
import { sha256 } from '../../../src/platform/crypto/token.ts';
import { openConnections } from '../../support/connections.ts';
import {
  assertComplete,
  assertRefused,
  assertTable,
  bearer,
  isPage,
  type Line,
  linesOf,
  nameOf,
  outcomeOf,
  type Row,
  rowOf,
  send,
  type Sent,
  start,
} from '../../support/contract.ts';
import type { TestDatabase } from '../../support/database.ts';
import { ask, AUTH_TOKEN, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { OPERATOR_TOKEN } from '../../support/inbox.ts';
import { ORIGIN } from '../../support/portal.ts';
import { newName, storeUser } from '../../support/stored-users.ts';
import { createSecretToken, createToken } from '../../support/tokens.ts';
import { PASSWORD } from '../../support/users.ts';

/** They take no credential: probes, descriptions, pages and their files. */
const OPEN = [
  ...[
    'GET /',
    'GET /livez',
    'GET /openapi',
    'GET /openapi.json',
    'GET /pages/{file}',
    'GET /readyz',
    'GET /inbox',
  ],
  'GET /inbox/user',
  'GET /links',
  ...['GET /s/{id}', 'GET /r/{id}', 'GET /request', 'GET /request/{id}', 'GET /answer/{id}'],
];
/** Id and key are the credential. */
const LINKS = [
  ...['POST /s/{id}', 'POST /s/{id}/status', 'POST /s/{id}/delete', 'POST /r/{id}'],
  ...['POST /request/{id}', 'POST /answer/{id}'],
];

/** `own`: about a secret that this caller stored; `other`: that another sender stored. */
const SECRETS = linesOf(`
                             about  sender operator AUTH_TOKEN
  POST   /api/store/encrypt  all    201    201      201
  POST   /api/store/decrypt  own    403    200      200
  GET    /api/store          all    403    200      200
  GET    /api/store/options  all    200    200      200
  GET    /api/store/{id}     own    200    200      200
  GET    /api/store/{id}     other  404    200      200
  DELETE /api/store/{id}     own    200    200      200
  DELETE /api/store/{id}     other  404    200      200
  POST   /api/store/request  all    201    201      201
  GET    /api/store/links    all    403    403      403
`);

/** About an event or a token that does not exist, without a target. The stream never ends. */
const WEBHOOK = linesOf(`
                                  about  sender operator
  POST   /webhook                 all    200    401
  GET    /webhook                 all    200    401
  GET    /events                  all    401    200
  GET    /events/stream           all    401    ---
  GET    /events/delivery         all    401    200
  GET    /events/refused          all    401    200
  GET    /events/counts           all    401    200
  GET    /events/{id}             all    401    404
  POST   /events/redeliver        all    401    409
  POST   /events/{id}/redeliver   all    401    404
  POST   /events/pause            all    401    200
  POST   /events/resume           all    401    200
  GET    /tokens                  all    401    200
  POST   /tokens                  all    401    201
  PATCH  /tokens/{id}             all    401    404
  POST   /tokens/{id}/rotate      all    401    404
  POST   /tokens/{id}/revoke      all    401    404
  GET    /tokens/{id}/pending     all    401    404
  POST   /tokens/{id}/confirm     all    401    404
  POST   /tokens/{id}/test        all    401    404
  PATCH  /tokens/{id}/target      all    401    404
  DELETE /tokens/{id}/target      all    401    404
`);

const PLAIN = linesOf(`
                  about  sender operator
  POST  /webhook  all    200    401
  GET   /webhook  all    200    401
`);

/** Besides the tokens of the settings. */
async function tokensOf(service: string, { url, sql }: TestDatabase) {
  const store = openConnections({ after }, url, service);
  const create = async (name: string, role: 'sender' | 'operator') => {
    const made =
      service === 'secrets'
        ? await createSecretToken(store, { name, role })
        : await createToken(store, { name, role, source: 'generic' }, null);
    return made.token;
  };
  const tokens = {
    sender: await create('one', 'sender'),
    other: await create('other', 'sender'),
    operator: await create('operator', 'operator'),
    revoked: await create('revoked', 'sender'),
    'revoked operator': await create('revoked', 'operator'),
  };
  await sql`update ${sql(`${service}.tokens`)} set revoked_at = now() where name = 'revoked'`;
  return tokens;
}

/** Stores a secret. @returns what a request needs that is about it */
async function aboutSecret(url: string, token: string): Promise<Sent> {
  const body = { password: 'a secret' };
  const { json } = await ask('POST', `${url}/api/store/encrypt`, { bearer: token, body });
  return { path: { id: json.id }, query: `id=${json.id}`, body: { secret: json.secret } };
}

const running = await Promise.all(
  (await start(({ service }) => service !== 'identity')).map(async (variant) => {
    const { service, database } = variant;
    const ofService = service === 'secrets' ? SECRETS : WEBHOOK;
    const tokens = database && (await tokensOf(service, database));
    return { ...variant, lines: database ? ofService : PLAIN, tokens };
  }),
);

const [variant = assert.fail()] = await start(
  ({ name }) => name === 'identity with OpenID Connect',
);

for (const { name: variant, served, url, call, lines, tokens, service } of running) {
  const own = served.filter((row) => ![...OPEN, ...LINKS].includes(nameOf(row)));
  const known = lines.filter(({ name }) => own.some((row) => nameOf(row) === name));
  const callers = {
    sender: tokens?.sender ?? WEBHOOK_TOKEN,
    operator: tokens?.operator ?? OPERATOR_TOKEN,
    AUTH_TOKEN,
  };

  test(`${variant}: each row is in the table, or takes no credential`, () =>
    assertComplete(own, known));

  test(`${variant}: what each caller gets`, async () => {
    const request = async (caller: keyof typeof callers, { about }: Line, { pattern }: Row) => {
      const token = callers[caller];
      const storer = about === 'own' ? token : tokens?.other;
      const isAbout = service === 'secrets' && about !== 'all' && storer !== undefined;
      // A sender opens nothing, so another one may have stored it.
      const { path = {}, ...given } = isAbout ? await aboutSecret(url, storer) : {};
      return { path, ...(pattern.endsWith('decrypt') ? given : {}), headers: bearer(token) };
    };
    const names = ['sender', 'operator', 'AUTH_TOKEN'] as const;
    await assertTable({ call, rows: own }, known, names, request);
  });

  test(`${variant}: a link without its key is 404, whatever else is sent`, async () => {
    for (const row of served.filter((one) => LINKS.includes(nameOf(one)))) {
      for (const token of Object.values(callers)) {
        const headers = { ...bearer(token), 'x-link-key': 'A'.repeat(43) };
        assertRefused(await send(call, row, { headers }), row, [404, 'not_found'], [], token);
      }
    }
  });

  test(`${variant}: any other credential is 401`, async () => {
    const dead: Readonly<Record<string, Sent>> = {
      none: {},
      empty: { headers: { authorization: 'Bearer ' } },
      'of another scheme': { headers: { authorization: `Basic ${callers.operator}` } },
      'an unknown token': { headers: bearer('x'.repeat(43)) },
      'a revoked token': { headers: bearer(tokens?.revoked ?? '') },
      'a revoked token of an operator': { headers: bearer(tokens?.['revoked operator'] ?? '') },
      'the token of another service': {
        headers: bearer(service === 'secrets' ? WEBHOOK_TOKEN : AUTH_TOKEN),
      },
      'a session': { headers: bearer(createSessionToken()) },
      'as X-API-Key': { headers: { 'x-api-key': callers.operator } },
      'the token of an operator in the query': { query: `token=${callers.operator}` },
      'two tokens in the query': { query: `token=${callers.sender}&token=${callers.sender}` },
    };
    for (const row of new Set(known.map((line) => rowOf(own, line)))) {
      for (const [what, sent] of Object.entries(dead))
        assertRefused(await send(call, row, sent), row, [401, 'unauthorized'], [], what);
    }
  });
}

// --- The sign-in pages

/**
 * `nobody`: without a cookie. `old`: who signed in eleven minutes ago. `sign`: is sent to the
 * sign-in page. `done`: is sent on, with a notice. The forms are about another user, and have the
 * fields that they need.
 */
const CALLERS = ['nobody', 'user', 'user, old', 'admin', 'admin, old'] as const;
type Caller = (typeof CALLERS)[number];
const PAGES = linesOf(`
                                                 about   nobody user old  admin old
  GET  /login                                    all     200    200  200  200   200
  POST /login                                    all     401    401  401  401   401
  POST /login/code                               all     401    401  401  401   401
  POST /login/password                           all     401    401  401  401   401
  POST /login/enrol                              all     401    401  401  401   401
  POST /login/passkey                            all     401    401  401  401   401
  GET  /login/passkey                            all     200    200  200  200   200
  POST /login/code/passkey                       all     401    401  401  401   401
  GET  /login/code/passkey                       all     401    401  401  401   401
  GET  /link                                     all     200    200  200  200   200
  POST /link                                     all     401    401  401  401   401
  GET  /logout                                   all     200    200  200  200   200
  POST /logout                                   all     done   done done done  done
  GET  /account                                  all     sign   200  200  200   200
  POST /account/name                             self    sign   done done done  done
  POST /account/password                         self    sign   done done done  done
  GET  /account/export                           all     sign   200  200  200   200
  POST /account/delete                           self    sign   403  sign 403   sign
  POST /account/sessions/end                     self    sign   done done done  done
  POST /account/sessions/end                     other   sign   403  403  done  done
  GET  /account/factors                          all     sign   200  sign 200   sign
  POST /account/totp/start                       self    sign   200  sign 200   sign
  POST /account/totp                             self    sign   401  sign 401   sign
  POST /account/recovery                         self    sign   409  sign 409   sign
  POST /account/factors/remove                   self    sign   done sign done  sign
  GET  /account/passkeys                         self    sign   200  sign 200   sign
  POST /account/passkeys                         self    sign   401  sign 401   sign
  GET  /account/keys                             all     sign   200  sign 200   sign
  POST /account/keys                             self    sign   200  sign 200   sign
  POST /account/keys/revoke                      other   sign   403  403  done  done
  GET  /account/program-keys                     all     sign   403  403  200   200
  POST /account/program-keys                     self    sign   403  sign 200   sign
  POST /account/program-keys/revoke              other   sign   403  403  done  done
  GET  /account/users                            all     sign   403  403  200   200
  POST /account/users                            all     sign   403  sign 200   sign
  GET  /account/users/{user_id}                  other   sign   403  403  200   200
  POST /account/users/{user_id}/edit             other   sign   403  sign done  sign
  POST /account/users/{user_id}/enable           other   sign   403  sign done  sign
  POST /account/users/{user_id}/disable          other   sign   403  sign done  sign
  POST /account/users/{user_id}/promote          other   sign   403  sign done  sign
  POST /account/users/{user_id}/demote           other   sign   403  sign done  sign
  POST /account/users/{user_id}/delete           other   sign   403  sign done  sign
  POST /account/users/{user_id}/remove_factors   other   sign   403  sign done  sign
  POST /account/users/{user_id}/end_session      other   sign   403  sign done  sign
  POST /account/users/{user_id}/end_sessions     other   sign   403  sign done  sign
  POST /account/users/{user_id}/revoke_key       other   sign   403  sign done  sign
  POST /account/users/{user_id}/link             other   sign   403  sign 200   sign
  POST /account/users/{user_id}/secure           other   sign   403  sign 200   sign
  POST /account/users/{user_id}/password         other   sign   403  sign 200   sign
  GET  /account/audit                            all     sign   403  403  200   200
  GET  /account/audit.csv                        all     sign   403  403  200   200
  GET  /account/users.csv                        all     sign   403  403  200   200
  GET  /account/programs                         all     sign   200  200  200   200
  POST /account/programs                         all     sign   403  sign 200   sign
  POST /account/programs/end                     other   sign   done done done  done
  GET  /account/programs/{client_id}             other   sign   403  sign 200   sign
  POST /account/programs/{client_id}/edit        other   sign   403  sign done  sign
  POST /account/programs/{client_id}/enable      other   sign   403  sign done  sign
  POST /account/programs/{client_id}/disable     other   sign   403  sign done  sign
  POST /account/programs/{client_id}/secret      other   sign   403  sign 200   sign
  POST /account/programs/{client_id}/delete      other   sign   403  sign done  sign
  GET  /.well-known/openid-configuration         all     200    200  200  200   200
  GET  /.well-known/oauth-authorization-server   all     200    200  200  200   200
  GET  /oidc/keys                                all     200    200  200  200   200
  GET  /oidc/authorize                           all     400    400  400  400   400
  POST /oidc/authorize                           all     done   done done done  done
  POST /oidc/consent                             all     400    400  400  400   400
  GET  /oidc/logout                              all     200    200  200  200   200
  POST /oidc/logout                              all     done   done done done  done
  POST /oidc/logout/confirm                      all     200    200  200  200   200
  POST /oidc/token                               all     401    401  401  401   401
  POST /oidc/revoke                              all     401    401  401  401   401
  GET  /oidc/userinfo                            all     401    401  401  401   401
  POST /oidc/userinfo                            all     401    401  401  401   401
`);

const { call, database } = variant;
assert.ok(database);
const { sql } = database;
const rows = variant.served.filter(({ pattern }) =>
  /^\/(login|link|logout|account|oidc|\.well-known)/.test(pattern),
);

/** A user with a session of the pages. */
async function enter(isAdministrator: boolean) {
  const person = await storeUser(sql, isAdministrator);
  const token = randomBytes(32).toString('base64url');
  await sql`update identity.sessions set token_digest = ${sha256(token)}
    where id = ${person.session_id}`;
  return { ...person, cookie: `__Host-gatehouse=${token}` };
}

async function cookieOf(caller: Caller): Promise<string> {
  if (caller === 'nobody') return '';
  const { user_id, cookie } = await enter(caller.startsWith('admin'));
  if (caller.endsWith('old'))
    await sql`update identity.sessions set authenticated_at = now() - interval '11 minutes'
      where user_id = ${user_id}`;
  return cookie;
}

/** A program with a secret. */
async function storeProgram(): Promise<string> {
  const id = newName();
  await sql`
    insert into identity.oidc_clients (id, name, secret_digest, redirect, logout_uri,
      backchannel_uri, groups, pkce, consent, refresh, second_factor, id_token_seconds, enabled)
    values (${id}, ${id}, ${sha256(id)}, array['https://app.example.org/'], array[]::text[], '',
      array[]::text[], true, true, false, false, 600, true)`;
  return id;
}

type Fields = Readonly<Record<string, string>>;

function fieldsOf({ method, pattern }: Row, ids: Fields): Fields | undefined {
  if (method !== 'POST') return undefined;
  const username = newName();
  const email = `${username}@example.org`;
  const password = 'another passphrase';
  return {
    ...{ username, email, first_name: 'Ada', last_name: 'Lovelace', groups: '' },
    ...(/users\/\{user_id\}\/password|login|account\/delete/.test(pattern) ? { password } : {}),
    ...{ current_password: PASSWORD, new_password: password, return_to: '', role: 'user' },
    ...{ code: '123456', setup: 'a setup', credential: '{}', token: 'x'.repeat(43) },
    ...(pattern.includes('program-keys') ? { verify: 'on' } : {}),
    ...{ name: 'a name', days: '30', id: username, redirect: `https://${username}.example/` },
    ...{ request: '', answer: 'allow' },
    ...{ client_id: 'unknown', post_logout_redirect_uri: '', state: '' },
    ...ids,
  };
}

test('each page and form is in the table', () => assertComplete(rows, PAGES));

test('what each caller gets', () =>
  assertTable({ call, rows }, PAGES, CALLERS, async (caller, { about }, row) => {
    const { user_id, session_id, key_id } = await storeUser(sql);
    const client_id = await storeProgram();
    const path = about === 'other' ? { user_id, session_id, key_id, client_id } : {};
    const body = fieldsOf(row, path);
    const headers = { host: new URL(ORIGIN).host, cookie: await cookieOf(caller) };
    return { path, headers, ...(body ? { body } : {}) };
  }));

test('a form that another page, or no page, has sent is refused', async () => {
  const cookie = await cookieOf('admin');
  for (const row of rows.filter((one) => one.method === 'POST' && isPage(one))) {
    const origins = [
      { origin: 'https://app.example.org', code: 'cross_site' },
      { origin: 'null', code: 'cross_site' },
      { origin: '', code: 'forbidden' },
    ];
    for (const { origin, code } of origins) {
      const headers = { cookie, 'sec-fetch-site': 'none', origin };
      const answer = await send(call, row, { headers });
      assertRefused(answer, row, [403, code], [], origin);
    }
  }
});

test('no other credential opens a page', async () => {
  const { user_id, cookie } = await enter(true);
  const { session: token } = await storeUser(sql, true);
  const host = new URL(ORIGIN).host;
  const value = cookie.replace(/^.*=/, '');
  const dead: Readonly<Record<string, Readonly<Record<string, string>>>> = {
    'a session of the API': bearer(token),
    'a session of the API as the cookie': { cookie: `__Host-gatehouse=${token}` },
    'the cookie without its prefix': { cookie: `gatehouse=${value}; session=${token}` },
    'the cookie of the domain': { cookie: `__Secure-gatehouse=${value}` },
    'an unknown cookie': { cookie: `__Host-gatehouse=${'A'.repeat(43)}` },
    'the cookie twice': { cookie: `${cookie}; ${cookie}` },
  };
  for (const line of PAGES.filter(({ cells: [nobody] }) => nobody === 'sign')) {
    const row = rowOf(rows, line);
    for (const [what, headers] of Object.entries(dead)) {
      const answer = await send(call, row, { path: { user_id }, headers: { host, ...headers } });
      assert.equal(outcomeOf(answer), 'sign', `${line.name}: ${what}`);
    }
  }
});

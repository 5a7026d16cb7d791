/**
 * Who may open each sign-in page and send each form. This table is the policy that the documents
 * promise; the service has one of its own.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { sha256 } from '../../../src/platform/crypto/token.ts';
import {
  assertComplete,
  assertRefused,
  assertTable,
  bearer,
  isPage,
  linesOf,
  outcomeOf,
  type Row,
  rowOf,
  send,
  start,
} from '../../support/contract.ts';
import { ORIGIN } from '../../support/portal.ts';
import { newName, storeUser } from '../../support/stored-users.ts';
import { PASSWORD } from '../../support/users.ts';

/**
 * `nobody`: without a cookie. `old`: who signed in eleven minutes ago. `weak`: an administrator who
 * signed in by the password alone, and has a second factor. `temporary`: one whose password must be
 * changed. `sign`: is sent to the sign-in page. `done`: is sent on, with a notice. The forms are
 * about another user, and have the fields that they need.
 */
const CALLERS = [
  'nobody',
  'user',
  'user, old',
  'admin',
  'admin, old',
  'weak',
  'temporary',
] as const;
type Caller = (typeof CALLERS)[number];
const PAGES = linesOf(`
                                                 about   nobody user old  admin old  weak temporary
  GET  /login                                    all     200    200  200  200  200  200     200
  POST /login                                    all     401    401  401  401  401  401     401
  POST /login/code                               all     401    401  401  401  401  401     401
  POST /login/password                           all     401    401  401  401  401  401     401
  POST /login/enrol                              all     401    401  401  401  401  401     401
  POST /login/passkey                            all     401    401  401  401  401  401     401
  GET  /login/passkey                            all     200    200  200  200  200  200     200
  POST /login/code/passkey                       all     401    401  401  401  401  401     401
  GET  /login/code/passkey                       all     401    401  401  401  401  401     401
  GET  /link                                     all     200    200  200  200  200  200     200
  POST /link                                     all     401    401  401  401  401  401     401
  GET  /logout                                   all     200    200  200  200  200  200     200
  POST /logout                                   all     done   done done done done done    done
  GET  /account                                  all     sign   200  200  200  200  200     200
  POST /account/name                             self    sign   done done done done done    done
  POST /account/password                         self    sign   done done done done sign    done
  GET  /account/export                           all     sign   200  200  200  200  sign    200
  POST /account/delete                           self    sign   403  sign 403  sign sign    403
  POST /account/sessions/end                     self    sign   done done done done done    done
  POST /account/sessions/end                     other   sign   403  403  done done done    done
  GET  /account/factors                          all     sign   200  sign 200  sign sign    200
  POST /account/totp/start                       self    sign   200  sign 200  sign sign    200
  POST /account/totp                             self    sign   401  sign 401  sign sign    401
  POST /account/recovery                         self    sign   409  sign 409  sign sign    409
  POST /account/factors/remove                   self    sign   done sign done sign sign    done
  GET  /account/passkeys                         self    sign   200  sign 200  sign sign    200
  POST /account/passkeys                         self    sign   401  sign 401  sign sign    401
  GET  /account/keys                             all     sign   200  sign 200  sign sign    200
  POST /account/keys                             self    sign   200  sign 200  sign sign    403
  POST /account/keys/revoke                      other   sign   403  403  done done done    done
  GET  /account/program-keys                     all     sign   403  403  200  200  200     200
  POST /account/program-keys                     self    sign   403  sign 200  sign sign    403
  POST /account/program-keys/revoke              other   sign   403  403  done done done    done
  GET  /account/users                            all     sign   403  403  200  200  200     200
  POST /account/users                            all     sign   403  sign 200  sign sign    200
  GET  /account/users/{user_id}                  other   sign   403  403  200  200  200     200
  POST /account/users/{user_id}/edit             other   sign   403  sign done sign sign    done
  POST /account/users/{user_id}/enable           other   sign   403  sign done sign sign    done
  POST /account/users/{user_id}/disable          other   sign   403  sign done sign sign    done
  POST /account/users/{user_id}/promote          other   sign   403  sign done sign sign    403
  POST /account/users/{user_id}/demote           other   sign   403  sign done sign sign    done
  POST /account/users/{user_id}/delete           other   sign   403  sign done sign sign    done
  POST /account/users/{user_id}/remove_factors   other   sign   403  sign done sign sign    403
  POST /account/users/{user_id}/end_session      other   sign   403  sign done sign sign    done
  POST /account/users/{user_id}/end_sessions     other   sign   403  sign done sign sign    done
  POST /account/users/{user_id}/revoke_key       other   sign   403  sign done sign sign    done
  POST /account/users/{user_id}/link             other   sign   403  sign 200  sign sign    403
  POST /account/users/{user_id}/secure           other   sign   403  sign 200  sign sign    403
  POST /account/users/{user_id}/password         other   sign   403  sign 200  sign sign    403
  GET  /account/audit                            all     sign   403  403  200  200  200     200
  GET  /account/audit.csv                        all     sign   403  403  200  200  200     200
  GET  /account/users.csv                        all     sign   403  403  200  200  200     200
  GET  /account/programs                         all     sign   200  200  200  200  200     200
  POST /account/programs                         all     sign   403  sign 200  sign sign    403
  POST /account/programs/end                     other   sign   done done done done done    done
  GET  /account/programs/{client_id}             other   sign   403  sign 200  sign sign    200
  POST /account/programs/{client_id}/edit        other   sign   403  sign done sign sign    403
  POST /account/programs/{client_id}/enable      other   sign   403  sign done sign sign    403
  POST /account/programs/{client_id}/disable     other   sign   403  sign done sign sign    403
  POST /account/programs/{client_id}/secret      other   sign   403  sign 200  sign sign    403
  POST /account/programs/{client_id}/delete      other   sign   403  sign done sign sign    403
  GET  /.well-known/openid-configuration         all     200    200  200  200  200  200     200
  GET  /.well-known/oauth-authorization-server   all     200    200  200  200  200  200     200
  GET  /oidc/keys                                all     200    200  200  200  200  200     200
  GET  /oidc/authorize                           all     400    400  400  400  400  400     400
  POST /oidc/authorize                           all     done   done done done done done    done
  POST /oidc/consent                             all     400    400  400  400  400  400     400
  GET  /oidc/logout                              all     200    200  200  200  200  200     200
  POST /oidc/logout                              all     done   done done done done done    done
  POST /oidc/logout/confirm                      all     200    200  200  200  200  200     200
  POST /oidc/token                               all     401    401  401  401  401  401     401
  POST /oidc/revoke                              all     401    401  401  401  401  401     401
  GET  /oidc/userinfo                            all     401    401  401  401  401  401     401
  POST /oidc/userinfo                            all     401    401  401  401  401  401     401
`);

const [variant = assert.fail()] = await start(
  ({ name }) => name === 'identity with OpenID Connect',
);
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
  const { user_id, cookie } = await enter(!caller.startsWith('user'));
  if (caller.endsWith('old'))
    await sql`update identity.sessions set authenticated_at = now() - interval '11 minutes'
      where user_id = ${user_id}`;
  if (caller === 'weak')
    await sql`update identity.users set second_factor = true where id = ${user_id}`;
  if (caller === 'temporary')
    await sql`update identity.users set password_generated = true, password_set_at = now()
      where id = ${user_id}`;
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

/** What hands out rights or credentials needs a sign-in that is recent and complete (ASVS 7.5). */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { connect } from '../../../../scripts/postgres.ts';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { type Identity, type Person } from '../../../support/api-users.ts';
import { factorsOf } from '../../../support/factors.ts';
import { type Answer, ask, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { PORTAL, signInFor, startPortal } from '../../../support/portal.ts';
import { untilSql } from '../../../support/connections.ts';
import { assertError, PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { identity, sql, call, add, enter, visit, signIn } = portal;
const replica = await startGatehouse({ after }, ['identity'], portal.databaseUrl, {
  ...PORTAL,
  REQUIRE_SECOND_FACTOR: 'super_admin',
});
const holder = connect(portal.databaseUrl);
after(() => holder.end());
const NEW = 'a-password-of-my-own';

let names = 0;
const newUser = (more: Record<string, unknown> = {}) => {
  names += 1;
  return { username: `made-${names}`, email: `made-${names}@example.org`, ...more };
};

const age = ({ sql }: Identity, id: string, seconds: number) => sql`
  update identity.sessions
  set created_at = created_at - make_interval(secs => ${seconds}),
    authenticated_at = authenticated_at - make_interval(secs => ${seconds})
  where user_id = ${id}`;

/** What a credential of the administrator `chief` is, and how it is made. */
const CREDENTIALS: Readonly<Record<string, (at: Identity, chief: Person) => Promise<string>>> = {
  'a session of ten minutes': async (at, { token, id }) => {
    await age(at, id, 595);
    return token;
  },
  'a session of eleven minutes': async (at, { token, id }) => {
    await age(at, id, 660);
    return token;
  },
  'a session by the password alone of a user who has a factor': async (at, { token, id }) => {
    await at.sql`update identity.users set second_factor = true where id = ${id}`;
    return token;
  },
  'a session with a temporary password': async (at, { token, id }) => {
    await at.sql`update identity.users set password_generated = true, password_set_at = now()
      where id = ${id}`;
    return token;
  },
};

test('an ordinary user needs the same for a key and the password', async () => {
  const body = { current_password: PASSWORD, new_password: NEW };
  for (const [name, status] of [
    ['a session of ten minutes', 201],
    ['a session of eleven minutes', 401],
    ['a session by the password alone of a user who has a factor', 401],
    ['a session with a temporary password', 403],
  ] as const) {
    const user = await enter();
    const bearer = (await CREDENTIALS[name]?.(portal, user)) ?? '';
    assert.equal((await call(bearer, 'POST', '/api/key/', {})).status, status, name);
    const isAlone = name.includes('alone');
    const changed = await call(bearer, 'POST', '/api/auth/password', body);
    assert.equal(changed.status, isAlone ? 401 : 200, name);
    const renamed = await call(bearer, 'PATCH', `/api/user/${user.id}`, { first_name: 'Ada' });
    assert.equal(renamed.status, isAlone ? 200 : 401, 'the old token, and what is harmless');
  }
});

test('a change of the password is no new proof, and no longer session', async () => {
  const chief = await enter({ super_admin: true });
  const target = await add();
  await sql`update identity.sessions set created_at = created_at - interval '3 hours',
    expires_at = expires_at - interval '3 hours', methods = 'password, totp'
    where user_id = ${chief.id}`;
  const [before] = await sql`select created_at, expires_at from identity.sessions
    where user_id = ${chief.id}`;
  const link = (bearer: string) => call(bearer, 'POST', `/api/user/${target.id}/link`, {});
  assertError(await link(chief.token), 401, 'signin_too_old');
  const change = (bearer: string, current_password: string, new_password: string) =>
    call(bearer, 'POST', '/api/auth/password', { current_password, new_password });
  assertError(await change(chief.token, PASSWORD, PASSWORD), 400, 'invalid_body', [
    '/new_password',
  ]);
  const changed = await change(chief.token, PASSWORD, NEW);
  assert.equal(changed.status, 200, changed.text);
  const token = changed.json.data.session;
  assertError(await link(token), 401, 'signin_too_old');
  const verified = await call(token, 'GET', '/api/auth/verify');
  assert.equal(verified.headers.get('x-auth-methods'), 'password, totp');
  const time = Math.floor(Number(before?.created_at) / 1000);
  assert.equal(verified.headers.get('x-auth-time'), String(time));
  assertError(await call(token, 'GET', '/api/auth/verify?max_age=900'), 401, 'signin_too_old');
  const [now] = await sql`select expires_at from identity.sessions
    where user_id = ${chief.id} order by created_at desc`;
  assert.deepEqual(now?.expires_at, before?.expires_at);
  assert.equal((await link(await logIn(identity, chief.username, NEW))).status, 201);
});

test('a login with a code is a complete proof, and one before the factor is not', async () => {
  const { enrol, forgetSteps, stepNow } = factorsOf(portal);
  const user = await enter();
  const { secret } = await enrol(user.username);
  assertError(await call(user.token, 'POST', '/api/key/', {}), 401, 'signin_too_old');
  await forgetSteps(user.id);
  const otp = totpCode(secret, await stepNow());
  const { json } = await call(null, 'POST', '/api/auth/login', {
    username: user.username,
    password: PASSWORD,
    otp,
  });
  const token = json.data.session;
  const verified = await call(token, 'GET', '/api/auth/verify?require=second_factor');
  assert.deepEqual(
    [verified.status, verified.headers.get('x-auth-methods')],
    [200, 'password, totp'],
  );
  assert.equal((await call(token, 'POST', '/api/key/', {})).status, 201);
});

/** Forms of the pages, and the status of each when it is done. */
const FORMS: Readonly<Record<string, readonly [number, () => Record<string, string>]>> = {
  '/account/users': [200, () => ({ ...newUser(), role: 'administrator', first: 'link' })],
  '/account/users/TARGET/promote': [303, () => ({})],
  '/account/users/TARGET/password': [200, () => ({})],
  '/account/users/TARGET/link': [200, () => ({})],
  '/account/users/TARGET/secure': [200, () => ({})],
  '/account/users/TARGET/remove_factors': [303, () => ({})],
  '/account/keys': [200, () => ({ name: 'x', days: '30' })],
  '/account/program-keys': [200, () => ({ name: 'x', days: '30', verify: 'on' })],
};
for (const [path, [done, fields]] of Object.entries(FORMS)) {
  test(`the form ${path} needs the same`, async () => {
    for (const [name, status] of [
      ['a session of ten minutes', done],
      ['a session of eleven minutes', 303],
      ['a session by the password alone of a user who has a factor', 303],
      ['a session with a temporary password', 403],
    ] as const) {
      const user = await add({ super_admin: true });
      const target = await add();
      const { host: cookie } = await signIn(user.username);
      await CREDENTIALS[name]?.(portal, { ...user, token: '' });
      const [before] = await sql`select count(*) from identity.audit`;
      const sent = path.replace('TARGET', target.id);
      const page = await visit(sent, { fields: fields(), cookie });
      assert.equal(page.status, status, `${name}: ${page.text}`);
      if (status === done && name.includes('ten')) continue;
      const [now] = await sql`select count(*) from identity.audit`;
      assert.equal(now?.count, before?.count, `${name} changes nothing`);
      if (status !== 303) continue;
      const shown = sent.replace(/\/[a-z_]+$/, (end) => (/keys|users/.test(end) ? end : ''));
      assert.equal(page.headers.get('location'), signInFor(shown), name);
    }
  });
}

test('by the password alone, the form does not change the password of a user who has a factor', async () => {
  const user = await add();
  const { host: cookie } = await signIn(user.username);
  const { host: other } = await signIn(user.username);
  await sql`update identity.users set second_factor = true where id = ${user.id}`;
  const fields = { current_password: PASSWORD, new_password: NEW, repeated: NEW };
  const page = await visit('/account/password', { fields, cookie });
  assert.deepEqual([page.status, page.headers.get('location')], [303, signInFor('/account')]);
  assert.equal((await visit('/account', { cookie: other })).status, 200);
});

// --- Races

/** A request that waits for the row of a user, which is changed meanwhile. */
async function during(id: string, change: string, request: () => Promise<Answer>): Promise<Answer> {
  const answers: Array<Promise<Answer>> = [];
  await holder.begin(async (held) => {
    await held.unsafe(`update identity.users set ${change}, updated_at = now() where id = '${id}'`);
    answers.push(request());
    await untilSql(async () => {
      const waiting = await sql`select from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'`;
      return waiting.length > 0;
    }, 'the request waits');
  });
  const [answer] = answers;
  assert.ok(answer);
  return answer;
}

test('a session that is by the password alone when the request has waited changes nothing', async () => {
  const body = { current_password: PASSWORD, new_password: NEW };
  for (const path of ['/api/key/', '/api/auth/password', '/api/user/']) {
    const user = await enter({ super_admin: true });
    const sent = path === '/api/user/' ? newUser() : body;
    const answer = await during(user.id, 'second_factor = true', () =>
      call(user.token, 'POST', path, path === '/api/key/' ? {} : sent),
    );
    assertError(answer, 403, 'forbidden');
    assert.match(answer.json.error.message, /^Your rights changed/);
    const [made] = await sql`
      select (select count(*) from identity.api_keys where user_id = ${user.id})
        + (select count(*) from identity.audit where actor_id = ${user.id}
          and event in ('password.changed', 'user.created')) as count`;
    assert.equal(made?.count, '0', path);
  }
});

test('an administrator who is demoted while a promotion waits promotes nobody', async () => {
  const chief = await enter({ super_admin: true });
  const target = await add();
  const answer = await during(chief.id, 'super_admin = false', () =>
    call(chief.token, 'PATCH', `/api/user/${target.id}`, { super_admin: true }),
  );
  assertError(answer, 403, 'forbidden');
  const [row] = await sql`select super_admin from identity.users where id = ${target.id}`;
  assert.equal(row?.super_admin, false);
});

test('an administrator who is disabled while a change waits is enabled by a recent sign-in alone', async () => {
  const chief = await enter({ super_admin: true });
  for (const [seconds, status] of [
    [660, 401],
    [0, 200],
  ] as const) {
    const target = await add({ super_admin: true });
    await age(portal, chief.id, seconds);
    const answer = await during(target.id, 'enabled = false', () =>
      call(chief.token, 'PATCH', `/api/user/${target.id}`, { enabled: true }),
    );
    assert.equal(answer.status, status, answer.text);
    const [row] = await sql`select enabled from identity.users where id = ${target.id}`;
    assert.equal(row?.enabled, status === 200);
    await age(portal, chief.id, -seconds);
  }
});

test('a login that waits for a promotion needs the factor that administrators need', async () => {
  const user = await add();
  const answer = await during(user.id, 'super_admin = true', () =>
    ask('POST', `${replica.url.identity}/api/auth/login`, {
      body: { username: user.username, password: PASSWORD },
    }),
  );
  assertError(answer, 401, 'second_factor_needed');
});

/**
 * What keys with rights may do, and what whoever steals a provisioning key can and cannot do with
 * it: what the table of callers in `test/api/contract` does not show of docs/backends.md.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { Sql, TransactionSql } from 'postgres';
import { assertCreated, assertKey } from '../../../support/api-users.ts';
import { ask, startGatehouse } from '../../../support/gatehouse.ts';
import { meanwhile } from '../../../support/meanwhile.ts';
import { ORIGIN, PORTAL, startPortal } from '../../../support/portal.ts';
import { newName, storeUser } from '../../../support/stored-users.ts';
import { assertError, assertRevoked, isOpen, PASSWORD } from '../../../support/users.ts';

const { identity, databaseUrl, sql, admin, call, enter, key, visit } = await startPortal({ after });
const create = (bearer: string, body: object) => call(bearer, 'POST', '/api/key/', body);
const GIVEN = {
  rights: ['provision', 'verify'],
  scopes: ['orders:read'],
  provision_groups: ['customers'],
};
/** A key that makes users. */
const provisioning = (more: object = {}) => key(null, { ...GIVEN, ...more });
function someone(more: object = {}) {
  const username = newName();
  return { username, email: `${username}@example.org`, ...more };
}
const detailOf = async (event: string, targetId: string) => ({
  ...(
    await sql`select detail, key_id from identity.audit
      where event = ${event} and target_id = ${targetId}`
  )[0],
});
const pick = ({ rights, scopes, provision_groups }: Record<string, unknown>) => ({
  rights,
  scopes,
  provision_groups,
});

test('a key has the rights, scopes and groups that it was made with, and shows them', async () => {
  const answer = await create(admin.token, { ...GIVEN, user_id: null });
  assertCreated(answer);
  const made = answer.json.data;
  assertKey(made);
  assert.deepEqual([pick(made), made.made_by], [GIVEN, null]);
  const detail = 'rights provision verify, scopes orders:read, provision groups customers';
  assert.deepEqual(await detailOf('key.created', made.id), { detail, key_id: null });
  assert.deepEqual(pick((await call(admin.token, 'GET', '/api/key/')).json.data[0]), GIVEN);
});

test('a key without a list has the rights that keys had before there were lists', async () => {
  const own = (await create((await enter()).token, {})).json.data;
  assert.deepEqual(pick(own), { rights: null, scopes: [], provision_groups: [] });
  const nobodys = (await create(admin.token, { user_id: null })).json.data;
  assert.deepEqual(nobodys.rights, ['verify', 'read', 'revoke']);
});

test('what a key cannot be made with is named, and no key is made', async () => {
  const { token } = await enter();
  const before = await state();
  for (const [body, path] of [
    [{ rights: ['provision'] }, '/rights'],
    [{ user_id: null, provision_groups: ['a'] }, '/provision_groups'],
    [{ groups: ['a'] }, '/groups'],
  ] as const)
    assertError(await create(admin.token, body), 400, 'invalid_body', [path]);
  // An ordinary user has no scope to give, and acts for nobody else.
  assertError(await create(token, { scopes: ['orders:read'] }), 403, 'forbidden', ['/scopes']);
  assertError(await create(token, { ...GIVEN, user_id: null }), 403, 'forbidden');
  assert.equal(await state(), before);
});

test('verify passes on the scopes of a key, and requires each that is named', async () => {
  const { key: whole } = await provisioning({ scopes: ['orders:write', 'orders:read'] });
  const verify = (bearer: string, query = '') =>
    ask('GET', `${identity}/api/auth/verify${query}`, { bearer });
  const passed = await verify(whole, '?require=scope:orders:read&require=scope:orders:write');
  assert.equal(passed.status, 200, passed.text);
  assert.equal(passed.headers.get('x-auth-scopes'), 'orders:read,orders:write');
  for (const query of [
    '?require=scope:orders',
    '?require=scope:orders:read&require=scope:refunds',
    '?require=scope:orders:read&require=super_admin',
  ])
    assertError(await verify(whole, query), 403, 'forbidden');
  // Not even an administrator has a scope: sessions have users and groups.
  assertError(await verify(admin.token, '?require=scope:orders:read'), 403, 'forbidden');
  assert.equal((await verify(admin.token)).headers.get('x-auth-scopes'), '');
});

// --- The holder of a stolen provisioning key

/**
 * An attempt with the stolen key. `{customer}` is the id of what a scene has by this name. `NEW`
 * and `KEY` are the members of a new user and key.
 */
interface Attempt {
  readonly what: string;
  readonly method: string;
  readonly path: string;
  readonly body: string;
  /** The member that is to blame. */
  readonly blamed: string;
}
const attemptsIn = (table: string): Attempt[] =>
  table
    .trim()
    .split('\n')
    .map((line) => {
      const [what = '', method = '', path = '', body = '', blamed = ''] = line.split(/ *\| */);
      return { what: what.trim(), method, path, body, blamed };
    });

const CAN = attemptsIn(`
  create a user in its groups     | POST  | /api/user/           | {NEW,"groups":["customers"]}
  take a group that it names      | PATCH | /api/user/{customer} | {"groups":["staff"]}
  make a key with its own scopes  | POST  | /api/key/            | {KEY,"scopes":["orders:read"]}
`);

/** Cannot: 403, and nothing changes. */
const CANNOT = attemptsIn(`
  remove second factors | POST | /api/user/{customer}/link | {"remove_factors":true}
  create a user elsewhere | POST | /api/user/ | {NEW,"groups":["customers","staff"]} | /groups
  give a group | PATCH | /api/user/{customer} | {"groups":["admins","customers","staff"]} | /groups
  take another group | PATCH | /api/user/{customer} | {"groups":["customers"]} | /groups
  change a super administrator | PATCH | /api/user/{chief} | {"email":"thief@example.org"}
  disable a super administrator | PATCH | /api/user/{chief} | {"enabled":false}
  demote a super administrator | PATCH | /api/user/{chief} | {"super_admin":false}
  make a link for a super administrator | POST | /api/user/{chief}/link | {}
  end the link of a super administrator | DELETE | /api/user/{chief}/link
  make a key for an administrator | POST | /api/key/ | {"user_id":"{chief}","rights":["verify"]}
  list the keys of a super administrator | GET | /api/key/?user={chief}
  revoke a key of a super administrator | DELETE | /api/key/{chiefsKey}/revoke
  end a session of a super administrator | DELETE | /api/session/{chiefsSession}/revoke
  end all of a super administrator | DELETE | /api/session/revoke/all/user?user={chief}
  end all sessions | DELETE | /api/session/revoke/all
  make a key with another right | POST | /api/key/ | {KEY,"rights":["read"]} | /rights
  make a key without a list | POST | /api/key/ | {"user_id":"{customer}"} | /rights
  make a key with another scope | POST | /api/key/ | {KEY,"scopes":["orders:write"]} | /scopes
`);

/** The ids of a user with a group of the key and one of others, and of those it may not touch. */
async function sceneOf() {
  const customer = await storeUser(sql);
  const chief = await storeUser(sql, true);
  await sql`update identity.users set groups = '{customers,staff}'
    where id = ${customer.user_id}`;
  const ids: Readonly<Record<string, string>> = {
    customer: customer.user_id,
    customersKey: customer.key_id,
    chief: chief.user_id,
    chiefsKey: chief.key_id,
    chiefsSession: chief.session_id,
  };
  // With `revoke`, its policy lets it end sessions, and the transaction of the change decides.
  const stolen = await provisioning({ rights: ['provision', 'verify', 'revoke'] });
  const filled = (text: string) => text.replace(/\{(\w+)\}/g, (_, name) => ids[name] ?? '');
  const given = (body: string) =>
    filled(
      body
        .replace('NEW', JSON.stringify(someone()).slice(1, -1))
        .replace('KEY', '"user_id":"{customer}","rights":["verify"]'),
    );
  return {
    customer: customer.user_id,
    attempt: ({ method, path, body }: Attempt) =>
      call(stolen.key, method, filled(path), body === '' ? undefined : JSON.parse(given(body))),
  };
}

const state = async (at: Sql | TransactionSql = sql) =>
  JSON.stringify(
    await at`
      select
        (select json_agg(u order by id) from identity.users u) as users,
        (select json_agg(k order by id) from (select id, revoked from identity.api_keys) k) as keys,
        (select json_agg(s order by id) from (select id, revoked from identity.sessions) s)
          as sessions,
        (select json_agg(g) from identity.global_revocation g) as ends,
        (select json_agg(l order by user_id) from identity.links l) as links`,
  );

for (const one of CAN) {
  test(`a stolen provisioning key can ${one.what}`, async () => {
    const answer = await (await sceneOf()).attempt(one);
    assert.ok([200, 201].includes(answer.status), answer.text);
  });
}

for (const one of CANNOT) {
  test(`a stolen provisioning key cannot ${one.what}`, async () => {
    const { attempt } = await sceneOf();
    const before = await state();
    const answer = await attempt(one);
    assert.equal(await state(), before);
    assertError(answer, 403, 'forbidden', one.blamed === '' ? [] : [one.blamed]);
  });
}

/** Each may be done to an ordinary user, and waits here while the user becomes more. */
const MEANWHILE = attemptsIn(`
  change the address of | PATCH  | /api/user/{customer}           | {"email":"thief@example.org"}
  disable               | PATCH  | /api/user/{customer}           | {"enabled":false}
  take a group from     | PATCH  | /api/user/{customer}           | {"groups":["staff"]}
  make a link for       | POST   | /api/user/{customer}/link      | {}
  end the link of       | DELETE | /api/user/{customer}/link
  make a key for        | POST   | /api/key/                      | {KEY}
  revoke a key of       | DELETE | /api/key/{customersKey}/revoke
`);
const TURNS = [
  ['becomes a super administrator', { super_admin: true }, 403, 'forbidden', MEANWHILE],
  ['is deleted', { deleted_at: new Date() }, 404, 'not_found', MEANWHILE.slice(5, 6)],
] as const;

for (const [turn, change, status, code, attempts] of TURNS) {
  for (const one of attempts) {
    test(`a provisioning key cannot ${one.what} a user who ${turn} meanwhile`, async () => {
      const { customer, attempt } = await sceneOf();
      assertCreated(await call(admin.token, 'POST', `/api/user/${customer}/link`, {}));
      let before = '';
      const [answer = assert.fail()] = await meanwhile(
        sql,
        (held) => held`update identity.users set ${held(change)} where id = ${customer}`,
        () => [attempt(one)],
        async (held) => {
          before = await state(held);
        },
      );
      assertError(answer, status, code);
      assert.equal(await state(), before);
    });
  }
}

test('what a provisioning key does names it in the audit trail', async () => {
  const { key: whole, id: key_id } = await provisioning();
  const user = (await call(whole, 'POST', '/api/user/', someone({ groups: ['customers'] }))).json
    .data;
  const detail = 'groups +customers';
  assert.deepEqual(await detailOf('user.created', user.id), { detail, key_id });
  const made = (await create(whole, { user_id: user.id, rights: ['verify'] })).json.data;
  assert.equal((await detailOf('key.created', made.id)).key_id, key_id);
  assert.deepEqual([made.made_by, made.created_by], [key_id, admin.id]);
});

test('a revoked provisioning key ends at once on every replica, and what it made, if asked', async (t) => {
  const replica = (await startGatehouse(t, ['identity'], databaseUrl, PORTAL)).url.identity;
  for (const [query, message] of [
    ['', 'Key revoked.'],
    ['?with_made=true', 'Key revoked. Keys that it made and that were revoked: 1.'],
  ] as const) {
    const stolen = await provisioning({ rights: ['provision', 'read'] });
    const body = someone({ password: PASSWORD });
    const user = (await call(stolen.key, 'POST', '/api/user/', body)).json.data;
    const made = (await create(stolen.key, { user_id: user.id, rights: ['read'] })).json.data;
    const { link } = (await call(stolen.key, 'POST', `/api/user/${user.id}/link`, {})).json.data;
    assert.ok(link.startsWith(`${ORIGIN}/link#`), link);
    const open = () => visit('/link', { fields: { token: link } });
    assert.equal((await open()).status, 200);
    assert.equal(await isOpen(replica, made.key), true);
    const path = `/api/key/${stolen.id}/revoke${query}`;
    assertRevoked(await call(admin.token, 'DELETE', path), message);
    for (const url of [identity, replica]) {
      const answer = await ask('GET', `${url}/api/user/`, { bearer: stolen.key });
      assertError(answer, 401, 'unauthorized');
      assert.equal(await isOpen(url, made.key), query === '');
    }
    // A link ends with the key in any case.
    assert.equal((await open()).status, 401);
  }
});

for (const end of ['expires_at', 'deleted_at']) {
  test(`a link ends with the key that made it, at its ${end}`, async () => {
    const { id, key } = await provisioning();
    const user = (await call(key, 'POST', '/api/user/', someone({}))).json.data;
    const { link } = (await call(key, 'POST', `/api/user/${user.id}/link`, {})).json.data;
    const open = async () => (await visit('/link', { fields: { token: link } })).status;
    assert.equal(await open(), 200);
    await sql`update identity.api_keys set ${sql(end)} = now() where id = ${id}`;
    assert.equal(await open(), 401);
  });
}

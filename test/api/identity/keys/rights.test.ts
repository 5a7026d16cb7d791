/**
 * What keys with rights may do, and what whoever steals a provisioning key can and cannot do with
 * it: the table of docs/backends.md.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { Sql, TransactionSql } from 'postgres';
import { connect } from '../../../../scripts/postgres.ts';
import { untilLocked } from '../../../support/connections.ts';
import { ask, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { assertCreated, assertKey } from '../../../support/api-users.ts';
import { ORIGIN, PORTAL, startPortal } from '../../../support/portal.ts';
import {
  assertError,
  assertRevoked,
  assertSuccess,
  isOpen,
  PASSWORD,
} from '../../../support/users.ts';

const { identity, databaseUrl, sql, admin, call, enter, key, add, visit } = await startPortal({
  after,
});
const create = (bearer: string, body: object) => call(bearer, 'POST', '/api/key/', body);
const GIVEN = {
  user_id: null,
  name: 'sign-up',
  rights: ['provision', 'verify'],
  scopes: ['orders:read'],
  provision_groups: ['customers'],
};
/** A key that makes users. */
const provisioning = (more: object = {}) => key(null, { ...GIVEN, ...more });
const verify = (credential: string, query = '') =>
  ask('GET', `${identity}/api/auth/verify${query}`, { bearer: credential });
let names = 0;
function someone(more: object = {}) {
  names += 1;
  const username = `customer-${names}`;
  return { username, email: `${username}@example.org`, password: PASSWORD, ...more };
}
const detailOf = async (event: string, targetId: string) =>
  (
    await sql`select detail, key_id from identity.audit
      where event = ${event} and target_id = ${targetId}`
  )[0];

test('a key has the rights, scopes and groups that it was made with, and shows them', async () => {
  const answer = await create(admin.token, GIVEN);
  assertCreated(answer);
  const made = answer.json.data;
  assertKey(made);
  const { rights, scopes, provision_groups, made_by } = made;
  assert.deepEqual(
    { rights, scopes, provision_groups, made_by },
    { ...pick(GIVEN), made_by: null },
  );
  const detail = 'rights provision verify, scopes orders:read, provision groups customers';
  assert.equal((await detailOf('key.created', made.id))?.detail, detail);
  const listed = (await call(admin.token, 'GET', '/api/key/?limit=1')).json.data[0];
  assert.deepEqual(pick(listed), pick(GIVEN));
});
const pick = ({ rights, scopes, provision_groups }: Record<string, unknown>) => ({
  rights,
  scopes,
  provision_groups,
});

test('a key without a list has the rights that keys had before there were lists', async () => {
  const user = await enter();
  const own = (await create(user.token, {})).json.data;
  assert.deepEqual(pick(own), { rights: null, scopes: [], provision_groups: [] });
  assertSuccess(await call(own.key, 'PATCH', `/api/user/${user.id}`, { first_name: 'Ada' }));
  const nobodys = (await create(admin.token, { user_id: null })).json.data;
  assert.deepEqual(nobodys.rights, ['verify', 'read', 'revoke']);
});

test('what a key cannot be made with is named, and no key is made', async () => {
  const user = await enter();
  const count = async () => (await sql`select from identity.api_keys`).count;
  const before = await count();
  const wrong: ReadonlyArray<readonly [string, object, string]> = [
    [admin.token, { rights: ['everything'] }, '/rights'],
    [admin.token, { rights: ['verify', 'verify'] }, '/rights'],
    [admin.token, { rights: 'verify' }, '/rights'],
    [admin.token, { rights: ['provision'] }, '/rights'],
    [admin.token, { scopes: ['Orders Read'] }, '/scopes'],
    [admin.token, { scopes: ['a'.repeat(65)] }, '/scopes'],
    [admin.token, { scopes: ['a,b'] }, '/scopes'],
    [
      admin.token,
      { scopes: Array.from({ length: 33 }, (_, index) => `scope:${index}`) },
      '/scopes',
    ],
    [admin.token, { user_id: null, provision_groups: ['a'] }, '/provision_groups'],
    [admin.token, { ...GIVEN, provision_groups: ['A'] }, '/provision_groups'],
  ];
  for (const [bearer, body, path] of wrong)
    assertError(await create(bearer, body), 400, 'invalid_body', [path]);
  // An ordinary user has no scope to give, and acts for nobody else.
  assertError(await create(user.token, { scopes: ['orders:read'] }), 403, 'forbidden', ['/scopes']);
  assertError(await create(user.token, GIVEN), 403, 'forbidden');
  assert.equal(await count(), before);
});

test('verify passes on the scopes of a key, and requires each that is named', async () => {
  const { key: whole } = await provisioning({ scopes: ['orders:write', 'orders:read'] });
  const passed = await verify(whole, '?require=scope:orders:read&require=scope:orders:write');
  assert.equal(passed.status, 200, passed.text);
  assert.equal(passed.headers.get('x-auth-scopes'), 'orders:read,orders:write');
  for (const query of [
    '?require=scope:orders',
    '?require=scope:orders:read&require=scope:refunds',
    '?require=scope:orders:read&require=super_admin',
  ])
    assertError(await verify(whole, query), 403, 'forbidden');
  for (const query of ['?require=scope:', '?require=scope:A', '?require=scopes:a'])
    assertError(await verify(whole, query), 400, 'invalid_query', ['require']);
  // Not even an administrator has a scope: sessions have users and groups.
  assertError(await verify(admin.token, '?require=scope:orders:read'), 403, 'forbidden');
  assert.equal((await verify(admin.token)).headers.get('x-auth-scopes'), '');
});

// --- The holder of a stolen provisioning key

/** An attempt with the stolen key. `{customer}` is the id of what a scene has by this name. */
type Attempt = readonly [what: string, method: string, path: string, body?: object | undefined];

const CAN: readonly Attempt[] = [
  ['pass forward authentication', 'GET', '/api/auth/verify?require=scope:orders:read'],
  ['create a user in its groups', 'POST', '/api/user/', someone({ groups: ['customers'] })],
  ['disable a user', 'PATCH', '/api/user/{customer}', { enabled: false }],
  ['change an address', 'PATCH', '/api/user/{customer}', { email: 'new-address@example.org' }],
  ['take a group that it names', 'PATCH', '/api/user/{customer}', { groups: ['staff'] }],
  ['make a link for a user', 'POST', '/api/user/{customer}/link', {}],
  [
    'make a key with its own rights and scopes',
    'POST',
    '/api/key/',
    { user_id: '{customer}', rights: ['verify'], scopes: ['orders:read'] },
  ],
  ['list the keys of a user', 'GET', '/api/key/?user={customer}'],
  ['revoke a key of a user', 'DELETE', '/api/key/{customersKey}/revoke'],
];

/** Cannot: 403, and nothing changes. The member to blame follows. */
const CANNOT: ReadonlyArray<readonly [...Attempt, path?: string]> = [
  ['read users', 'GET', '/api/user/'],
  ['read a user', 'GET', '/api/user/{customer}'],
  ['read sessions', 'GET', '/api/session/'],
  ['read the audit trail', 'GET', '/api/audit/'],
  ['delete a user', 'DELETE', '/api/user/{customer}'],
  ['set a password', 'POST', '/api/user/{customer}/password', { password: PASSWORD }],
  ['remove second factors', 'POST', '/api/user/{customer}/link', { remove_factors: true }],
  ['secure an account', 'POST', '/api/user/{customer}/secure'],
  ['end the sessions of a user', 'DELETE', '/api/session/revoke/all/user?user={customer}'],
  ['end all sessions', 'DELETE', '/api/session/revoke/all'],
  ['create a super administrator', 'POST', '/api/user/', someone({ super_admin: true })],
  ['promote a user', 'PATCH', '/api/user/{customer}', { super_admin: true }],
  [
    'create a user in a group that it does not name',
    'POST',
    '/api/user/',
    someone({ groups: ['customers', 'staff'] }),
    '/groups',
  ],
  [
    'give a group that it does not name',
    'PATCH',
    '/api/user/{customer}',
    { groups: ['admins', 'staff'] },
    '/groups',
  ],
  [
    'take a group that it does not name',
    'PATCH',
    '/api/user/{customer}',
    { groups: ['customers'] },
    '/groups',
  ],
  ['change a super administrator', 'PATCH', '/api/user/{chief}', { email: 'thief@example.org' }],
  ['disable a super administrator', 'PATCH', '/api/user/{chief}', { enabled: false }],
  ['demote a super administrator', 'PATCH', '/api/user/{chief}', { super_admin: false }],
  ['make a link for a super administrator', 'POST', '/api/user/{chief}/link', {}],
  ['end the link of a super administrator', 'DELETE', '/api/user/{chief}/link'],
  [
    'make a key for a super administrator',
    'POST',
    '/api/key/',
    { user_id: '{chief}', rights: ['verify'] },
  ],
  ['list the keys of a super administrator', 'GET', '/api/key/?user={chief}'],
  ['list all keys', 'GET', '/api/key/'],
  ['revoke a key of a super administrator', 'DELETE', '/api/key/{chiefsKey}/revoke'],
  ['revoke a key without a user', 'DELETE', '/api/key/{program}/revoke'],
  ['make a key without a user', 'POST', '/api/key/', { user_id: null, rights: ['verify'] }],
  [
    'make a key with a right that it lacks',
    'POST',
    '/api/key/',
    { user_id: '{customer}', rights: ['read'] },
    '/rights',
  ],
  ['make a key without a list', 'POST', '/api/key/', { user_id: '{customer}' }, '/rights'],
  [
    'make a key with a scope that it lacks',
    'POST',
    '/api/key/',
    { user_id: '{customer}', rights: ['verify'], scopes: ['orders:write'] },
    '/scopes',
  ],
];

/** The ids of a user with a group of the key and one of others, and of those it may not touch. */
async function sceneOf() {
  const customer = await add({ groups: ['customers', 'staff'] });
  const chief = await enter({ super_admin: true });
  const made = (await create(admin.token, { user_id: customer.id })).json.data;
  const ids: Readonly<Record<string, string>> = {
    customer: customer.id,
    customersKey: made.id,
    chief: chief.id,
    chiefsKey: (await key(chief)).id,
    program: (await provisioning()).id,
  };
  const stolen = await provisioning();
  const filled = (text: string) => text.replace(/\{(\w+)\}/g, (_, name) => ids[name] ?? '');
  return {
    customer,
    attempt: ([, method, path, body]: Attempt) =>
      call(stolen.key, method, filled(path), body && JSON.parse(filled(JSON.stringify(body)))),
  };
}

const state = async (at: Sql | TransactionSql = sql) =>
  JSON.stringify(
    await at`
      select
        (select json_agg(u order by id) from (
          select id, username, email, groups, enabled, super_admin, password_hash, sessions_end_at,
            updated_at, deleted_at
          from identity.users) u) as users,
        (select json_agg(k order by id) from (select id, revoked from identity.api_keys) k) as keys,
        (select json_agg(l order by user_id) from identity.links l) as links`,
  );

for (const one of CAN) {
  test(`a stolen provisioning key can ${one[0]}`, async () => {
    const { attempt } = await sceneOf();
    const answer = await attempt(one);
    assert.ok([200, 201].includes(answer.status), answer.text);
  });
}

for (const [what, method, path, body, blamed] of CANNOT) {
  test(`a stolen provisioning key cannot ${what}`, async () => {
    const { attempt } = await sceneOf();
    const before = await state();
    const answer = await attempt([what, method, path, body]);
    assert.equal(await state(), before);
    assertError(answer, 403, 'forbidden', blamed === undefined ? [] : [blamed]);
  });
}

/** Each may be done to an ordinary user, and waits here while the user becomes more. */
const MEANWHILE: readonly Attempt[] = [
  ['change the address of', 'PATCH', '/api/user/{customer}', { email: 'thief@example.org' }],
  ['disable', 'PATCH', '/api/user/{customer}', { enabled: false }],
  ['take a group from', 'PATCH', '/api/user/{customer}', { groups: ['staff'] }],
  ['make a link for', 'POST', '/api/user/{customer}/link', {}],
  ['end the link of', 'DELETE', '/api/user/{customer}/link'],
  ['make a key for', 'POST', '/api/key/', { user_id: '{customer}', rights: ['verify'] }],
  ['revoke a key of', 'DELETE', '/api/key/{customersKey}/revoke'],
];

for (const one of MEANWHILE) {
  test(`a provisioning key cannot ${one[0]} a user who becomes a super administrator meanwhile`, async (t) => {
    const { customer, attempt } = await sceneOf();
    assertCreated(await call(admin.token, 'POST', `/api/user/${customer.id}/link`, {}));
    const promotion = connect(databaseUrl);
    t.after(() => promotion.end());
    const { before, answer } = await promotion.begin(async (promoting) => {
      await promoting`update identity.users set super_admin = true where id = ${customer.id}`;
      const waiting = attempt(one);
      await untilLocked(promoting, 1);
      return { before: await state(promoting), answer: waiting };
    });
    assertError(await answer, 403, 'forbidden');
    assert.equal(await state(), before);
  });
}

test('what a provisioning key does names it in the audit trail', async () => {
  const { key: whole, id } = await provisioning();
  const created = (await call(whole, 'POST', '/api/user/', someone({ groups: ['customers'] }))).json
    .data;
  assert.deepEqual(
    { ...(await detailOf('user.created', created.id)) },
    {
      detail: 'groups +customers',
      key_id: id,
    },
  );
  const made = (
    await create(whole, { user_id: created.id, rights: ['verify'], scopes: ['orders:read'] })
  ).json.data;
  assert.equal((await detailOf('key.created', made.id))?.key_id, id);
  assert.deepEqual([made.made_by, made.created_by], [id, admin.id]);
});

test('a revoked provisioning key ends at once on every replica, and what it made, if asked', async (t) => {
  const replica = (await startGatehouse(t, ['identity'], databaseUrl, PORTAL)).url.identity;
  for (const withMade of [false, true]) {
    const stolen = await provisioning({ rights: ['provision', 'read'] });
    const user = (await call(stolen.key, 'POST', '/api/user/', someone())).json.data;
    const made = (await create(stolen.key, { user_id: user.id, rights: ['read'] })).json.data;
    const link = (await call(stolen.key, 'POST', `/api/user/${user.id}/link`, {})).json.data.link;
    const query = withMade ? '?with_made=true' : '';
    const message = withMade
      ? 'Key revoked. Keys that it made and that were revoked: 1.'
      : 'Key revoked.';
    assert.equal(await isOpen(replica, made.key), true);
    assertRevoked(
      await call(admin.token, 'DELETE', `/api/key/${stolen.id}/revoke${query}`),
      message,
    );
    for (const url of [identity, replica]) {
      const answer = await ask('GET', `${url}/api/user/`, { bearer: stolen.key });
      assertError(answer, 401, 'unauthorized');
      assert.equal(await isOpen(url, made.key), !withMade);
    }
    // A link ends with the key in any case.
    const opened = await visit('/link', { fields: { token: link.split('#')[1] ?? '' } });
    assert.equal(opened.status, 401, opened.text);
    assert.match(opened.text, /This link does not work/);
  }
});

test('a link that a key made opens, and sets the password', async () => {
  const { key: whole } = await provisioning();
  const user = (await call(whole, 'POST', '/api/user/', someone({ password: undefined }))).json
    .data;
  const { link } = (await call(whole, 'POST', `/api/user/${user.id}/link`, {})).json.data;
  assert.ok(link.startsWith(`${ORIGIN}/link#`), link);
  const opened = await visit('/link', { fields: { token: link } });
  assert.equal(opened.status, 200, opened.text);
  assert.match(opened.text, /password/);
});

test('a provisioning key ends with its creator, as any key without a user', async () => {
  const chief = await enter({ super_admin: true });
  const { key: whole } = (await create(chief.token, GIVEN)).json.data;
  assertCreated(await call(whole, 'POST', '/api/user/', someone()));
  const demoted = await call(admin.token, 'PATCH', `/api/user/${chief.id}`, { super_admin: false });
  assert.equal(demoted.json.data.revoked_keys, 1);
  assertError(await call(whole, 'POST', '/api/user/', someone()), 401, 'unauthorized');
});

test('a user whom a key created signs in with the password of the sign-up', async () => {
  const { key: whole } = await provisioning();
  const { username } = (await call(whole, 'POST', '/api/user/', someone())).json.data;
  assert.equal(await isOpen(identity, await logIn(identity, username, PASSWORD)), true);
});

/**
 * Who may do what, endpoint by endpoint; and under which paths and methods the endpoints answer at
 * all.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { ask, logIn, startGatehouse } from '../../support/gatehouse.ts';
import {
  addUser,
  assertError,
  bearerEndpoints,
  openIdentity,
  PASSWORD,
  sessionOf,
} from '../../support/users.ts';

const { url: databaseUrl } = await createDatabase();
const identity = (await startGatehouse({ after }, ['identity'], databaseUrl)).url.identity;
const database = openIdentity({ after }, databaseUrl);
await addUser(database, 'plain-user');
await addUser(database, 'other-user');

/** A caller, and a session that the call is about. */
async function scene(caller: string, about: string) {
  const log = (name: string) =>
    name === 'admin' ? logIn(identity) : logIn(identity, name, PASSWORD);
  const bearer = await log(caller);
  const token = await log(about);
  const { id, user_id: user } = await sessionOf(identity, token);
  return { bearer, endpoints: bearerEndpoints({ token, id, user }) };
}

const policy: ReadonlyArray<readonly [caller: string, about: string, ...statuses: number[]]> = [
  // test, users, sessions, info, revoke by token, by id, of the user, of everybody: in the order of
  // bearerEndpoints
  ['admin', 'admin', 200, 200, 200, 200, 200, 200, 200, 200],
  ['admin', 'other-user', 200, 200, 200, 200, 200, 200, 200, 200],
  ['plain-user', 'plain-user', 200, 200, 200, 200, 200, 200, 200, 403],
  ['plain-user', 'other-user', 200, 200, 200, 200, 200, 403, 403, 403],
  ['plain-user', 'admin', 200, 200, 200, 200, 200, 403, 403, 403],
];

for (const [caller, about, ...expected] of policy) {
  test(`what "${caller}" may do about a session of "${about}"`, async () => {
    for (const [index, status] of expected.entries()) {
      // A scene of its own for each, because a revocation may end the caller's session.
      const { bearer, endpoints } = await scene(caller, about);
      const [method, path] = endpoints[index] ?? ['', ''];
      const answer = await ask(method, identity + path, { bearer });
      assert.equal(answer.status, status, `${method} ${path}: ${answer.text}`);
      if (status === 403) assertError(answer, 403, 'forbidden');
    }
  });
}

test('every endpoint answers with and without a trailing slash', async () => {
  for (let index = 0; index < 8; index += 1) {
    for (const spell of [
      (path: string) => path.replace(/\/?(\?|$)/, '$1'),
      (path: string) => path.replace(/\/?(\?|$)/, '/$1'),
    ]) {
      const { bearer, endpoints } = await scene('admin', 'other-user');
      const [method, path] = endpoints[index] ?? ['', ''];
      assert.equal(
        (await ask(method, identity + spell(path), { bearer })).status,
        200,
        `${method} ${spell(path)}`,
      );
    }
  }
  const open = [
    ['GET', '/livez', 200],
    ['GET', '/readyz', 200],
    ['POST', '/api/auth/login', 400],
    ['POST', '/api/auth/logout', 400],
    ['POST', '/api/auth/session', 400],
  ] as const;
  for (const [method, path, status] of open) {
    for (const spelling of [path, `${path}/`])
      assert.equal((await ask(method, identity + spelling)).status, status, spelling);
  }
});

test('another method is 405 and names the allowed ones, before authentication', async () => {
  const cases = [
    ['GET', '/api/auth/login', 'POST'],
    ['PUT', '/api/auth/logout', 'POST'],
    ['GET', '/api/auth/session', 'POST'],
    ['GET', '/api/auth/password', 'POST'],
    ['POST', '/api/auth/verify', 'GET'],
    ['PUT', '/api/user/', 'GET'],
    ['DELETE', '/api/user/', 'POST'],
    ['PUT', '/api/user/00000000-0000-4000-8000-000000000000', 'PATCH'],
    ['POST', '/api/user/00000000-0000-4000-8000-000000000000', 'DELETE'],
    ['PATCH', '/api/user/00000000-0000-4000-8000-000000000000/password', 'POST'],
    ['DELETE', '/api/key/', 'POST'],
    ['GET', '/api/key/00000000-0000-4000-8000-000000000000/revoke', 'DELETE'],
    ['DELETE', '/api/audit/', 'GET'],
    ['DELETE', '/api/session/', 'GET'],
    ['POST', '/api/session/info', 'GET'],
    ['GET', '/api/session/revoke', 'DELETE'],
    ['POST', '/api/session/revoke/all', 'DELETE'],
    ['GET', '/api/session/revoke/all/user', 'DELETE'],
    ['PATCH', '/api/session/00000000-0000-4000-8000-000000000000/revoke', 'DELETE'],
    ['DELETE', '/api/test/', 'GET'],
    ['POST', '/livez', 'GET'],
    ['POST', '/readyz', 'GET'],
  ] as const;
  for (const [method, path, allowed] of cases) {
    const answer = await ask(method, identity + path);
    assertError(answer, 405, 'method_not_allowed');
    const allow = (answer.headers.get('allow') ?? '').split(', ');
    assert.ok(
      allow.includes(allowed) && !allow.includes(method),
      `${method} ${path}: ${allow.join()}`,
    );
  }
});

test('an unknown path is 404, with and without a credential', async () => {
  const bearer = await logIn(identity);
  for (const path of [
    '/',
    '/api',
    '/api/auth',
    '/api/users/',
    '/api/session/info/more',
    '/api/session/revoke/all/user/more',
    '/API/user/',
    '/api//user/',
  ]) {
    assertError(await ask('GET', identity + path), 404, 'no_such_path');
    assertError(await ask('GET', identity + path, { bearer }), 404, 'no_such_path');
  }
});

test('the interface description is at version 0.0.1 and names every endpoint', async () => {
  const answer = await ask('GET', `${identity}/openapi.json`);
  assert.equal(answer.status, 200);
  assert.deepEqual([answer.json.openapi, answer.json.info.version], ['3.0.3', '0.0.1']);
  const operations = Object.entries<object>(answer.json.paths).flatMap(([path, item]) =>
    Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`),
  );
  const specified = [
    'GET /readyz',
    'GET /livez',
    'POST /api/auth/login',
    'POST /api/auth/logout',
    'POST /api/auth/session',
    'GET /api/user/',
    'GET /api/session/',
    'GET /api/session/info',
    'DELETE /api/session/revoke',
    'DELETE /api/session/{session_id}/revoke',
    'DELETE /api/session/revoke/all',
    'DELETE /api/session/revoke/all/user',
    'GET /api/test/',
  ];
  assert.deepEqual(
    specified.filter((operation) => !operations.includes(operation)),
    [],
  );
});

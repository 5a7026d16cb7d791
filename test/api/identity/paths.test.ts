/** Under which paths identity answers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, launch, logIn } from '../../support/gatehouse.ts';
import { assertError } from '../../support/users.ts';
import { wordsOf } from '../../support/words.ts';

const { identity } = await launch(['identity']);

test('an unknown path is 404, with and without a credential', async () => {
  const bearer = await logIn(identity);
  for (const path of wordsOf(`
    / /api /api/auth /api/users/ /api/session/info/more /api/session/revoke/all/user/more /API/user/
    /api//user/
  `)) {
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

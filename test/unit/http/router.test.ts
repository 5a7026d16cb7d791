import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { createRouter } from '../../../src/platform/http/route/router.ts';

interface Row {
  readonly method: string;
  readonly pattern: string;
}

/** `GET /a/{b}` → a row. */
const rowsOf = (...lines: readonly string[]): Row[] =>
  lines.map((line) => {
    const [method = '', pattern = ''] = line.split(' ');
    return { method, pattern };
  });

/** What `GET /a/b` finds, in one line: the row and its parameters, or why there is none. */
function finderOf(rows: readonly Row[]): (request: string) => string {
  const router = createRouter(rows);
  return (request) => {
    const [method = '', path = ''] = request.split(' ');
    const match = router(method, path.slice(1).split('/'));
    if (match instanceof Failure)
      return match.code === 'no_such_path' ? '404' : `405 ${match.details.headers?.Allow}`;
    const parameters = Object.entries(match.parameters).map(([name, value]) => ` ${name}=${value}`);
    return `${match.route.method} ${match.route.pattern}${parameters.join('')}`;
  };
}

const SESSIONS = rowsOf(
  'GET /api/session/',
  'GET /api/session/info',
  'DELETE /api/session/revoke',
  'DELETE /api/session/{session_id}/revoke',
  'DELETE /api/session/revoke/all',
  'DELETE /api/session/revoke/all/user',
  'POST /{one}/{two}/{three}/x',
);

const EXPECTED: ReadonlyArray<readonly [request: string, found: string]> = [
  ['GET /api/session', 'GET /api/session/'],
  ['DELETE /api/session/revoke', 'DELETE /api/session/revoke'],
  ['DELETE /api/session/revoke/all', 'DELETE /api/session/revoke/all'],
  ['DELETE /api/session/revoke/all/user', 'DELETE /api/session/revoke/all/user'],
  ['DELETE /api/session/7/revoke', 'DELETE /api/session/{session_id}/revoke session_id=7'],
  // The static branch is tried first and leads nowhere.
  [
    'DELETE /api/session/revoke/revoke',
    'DELETE /api/session/{session_id}/revoke session_id=revoke',
  ],
  ['POST /api/session/info/x', 'POST /{one}/{two}/{three}/x one=api two=session three=info'],
  ['DELETE /api/session/revoke/all/', '404'],
  ['DELETE /api/session/revoke/all/user/more', '404'],
  ['GET /api', '404'],
  ['GET /', '404'],
  ['GET /API/session', '404'],
  ['GET /api/session/unknown', '404'],
];

test('a request finds its route in any order of the routes', () => {
  const middle = Math.floor(SESSIONS.length / 2);
  const orders = [
    SESSIONS,
    SESSIONS.toReversed(),
    [...SESSIONS.slice(middle), ...SESSIONS.slice(0, middle)],
  ];
  for (const rows of orders) {
    const find = finderOf(rows);
    for (const [request, found] of EXPECTED) assert.equal(find(request), found, request);
  }
});

test('a static segment wins over a parameter, whatever its first character', () => {
  for (const name of ['a', 'A', '0', '-', '~a', '|', 'é']) {
    for (const rows of [
      ['GET /{id}', `GET /${name}`],
      [`GET /${name}`, 'GET /{id}'],
    ]) {
      assert.equal(finderOf(rowsOf(...rows))(`GET /${name}`), `GET /${name}`);
    }
  }
});

test('a parameter matches one segment, but not an empty one', () => {
  const find = finderOf(rowsOf('GET /a/{id}', 'GET /a/{id}/b'));
  assert.equal(find('GET /a/{id}'), 'GET /a/{id} id={id}');
  for (const request of ['GET /a/', 'GET /a//b', 'GET //a', 'GET /a/1/'])
    assert.equal(find(request), '404', request);
});

test('Allow lists the methods of a path, with HEAD and OPTIONS', () => {
  const find = finderOf(rowsOf('POST /a', 'GET /a', 'DELETE /only/{id}'));
  assert.equal(find('PUT /a'), '405 GET, HEAD, OPTIONS, POST');
  assert.equal(find('OPTIONS /a'), '405 GET, HEAD, OPTIONS, POST');
  assert.equal(find('GET /only/1'), '405 DELETE, OPTIONS');
  assert.equal(find('HEAD /only/1'), '405 DELETE, OPTIONS');
  assert.equal(find('get /a'), '405 GET, HEAD, OPTIONS, POST', 'methods are told apart by case');
});

test('HEAD is answered where GET is', () => {
  assert.equal(finderOf(rowsOf('GET /a'))('HEAD /a'), 'GET /a');
});

test('names of inherited properties are neither paths nor methods', () => {
  const inherited = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'valueOf'];
  const bare = finderOf(rowsOf('GET /a'));
  const caught = finderOf(rowsOf('GET /a/{id}'));
  for (const name of inherited) {
    assert.equal(bare(`GET /${name}`), '404', name);
    assert.equal(bare(`GET /a/${name}`), '404', name);
    assert.equal(bare(`${name} /a`), '405 GET, HEAD, OPTIONS', name);
    assert.equal(caught(`GET /a/${name}`), `GET /a/{id} id=${name}`);
  }
});

test('a parameter named __proto__ changes no prototype', () => {
  const match = createRouter(rowsOf('GET /{__proto__}'))('GET', ['evil']);
  assert.ok(!(match instanceof Failure));
  assert.deepEqual(Object.entries(match.parameters), [['__proto__', 'evil']]);
  assert.equal(Object.getPrototypeOf(match.parameters), Object.prototype);
});

test('a trailing slash in a pattern does not matter', () => {
  assert.equal(finderOf(rowsOf('GET /a/'))('GET /a'), 'GET /a/');
  assert.equal(finderOf(rowsOf('GET /'))('GET /'), 'GET /');
});

test('an unknown path is not the root, and an escaped slash does not end a segment', () => {
  const router = createRouter(rowsOf('GET /', 'GET /a/b', 'GET /a/{x}'));
  const found = (...segments: readonly string[]) => {
    const match = router('GET', segments);
    return match instanceof Failure ? match.code : match.route.pattern;
  };
  assert.equal(found(''), '/');
  assert.equal(found('a', 'b'), '/a/b');
  assert.equal(found('a', 'c'), '/a/{x}');
  for (const segments of [
    ['a'],
    ['a/b'],
    ['a', 'b', 'c'],
    ['/'],
    ['', ''],
    ['a', ''],
    ['x', 'y'],
  ]) {
    assert.equal(found(...segments), 'no_such_path', JSON.stringify(segments));
  }
});

test('two routes that match the same requests are rejected, and both are named', () => {
  for (const [one, other] of [
    ['GET /a/{x}', 'GET /a/{y}'],
    ['GET /a/{x}', 'POST /a/{y}'],
    ['GET /b', 'GET /b/'],
    ['GET /b', 'GET /b'],
  ] as const) {
    const message = `internal error: ${one} and ${other} match the same requests`;
    assert.throws(() => createRouter(rowsOf(one, 'GET /c', other)), { message });
  }
  assert.doesNotThrow(() => createRouter(rowsOf('GET /a/{x}', 'POST /a/{x}', 'GET /{a}/b')));
});

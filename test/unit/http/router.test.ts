/** Request targets, and the route that a request finds. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { json } from '../../../src/platform/http/route/json-body.ts';
import { anonymous, route, routeDefaults } from '../../../src/platform/http/route/route.ts';
import { createRouter, parseTarget } from '../../../src/platform/http/route/router.ts';
import { object, text } from '../../../src/platform/http/route/schema.ts';
import { bearerGuard } from '../../support/listener.ts';
import { wordsOf } from '../../support/words.ts';

/** No path, or more than one reading: a host, a scheme, escapes that are no UTF-8. */
const REFUSED = wordsOf(`
  * livez ?a=1 // //evil.example/livez http:///livez http:/a/livez ftp://a/livez http://a//livez
  evil.example:443 \\\\evil.example/livez /% /%4 /%zz /%ff /%c0%af /%ed%a0%80 /a?b=% /a?%=b /a?b=%ff
  /a?b=1&c=%e0%80
`);

test('a target that is not a path, or is wrongly encoded, is rejected', () => {
  for (const target of ['', ...REFUSED]) assert.equal(parseTarget(target), null, target);
});

const PATHS: Readonly<Record<string, readonly string[]>> = {
  '/': [''],
  '/livez': ['livez'],
  '/livez/': ['livez'],
  '/livez//': ['livez', ''],
  '/a//b': ['a', '', 'b'],
  '/a/b/?c': ['a', 'b'],
  // Splitting comes before decoding: an encoded slash separates nothing.
  '/a%2Fb': ['a/b'],
  '/%2e%2e/a': ['..', 'a'],
  '/a%3Fb': ['a?b'],
  '/a+b': ['a+b'],
  '/%2525': ['%25'],
  '/%E2%82%AC': ['€'],
  '/a%00b': ['a\0b'],
  '/a#b': ['a#b'],
};

test('a path is split, decoded once, and loses one trailing slash', () => {
  for (const [target, segments] of Object.entries(PATHS))
    assert.deepEqual(parseTarget(target)?.segments, segments, target);
  assert.equal(parseTarget('/a%2Fb/?c=d?e')?.path, '/a%2Fb/');
});

test('the absolute form has a host and a path', () => {
  for (const [target, authority, path] of [
    ['http://a.example/livez?b=1', 'a.example', '/livez'],
    ['HTTPS://a.example:8443/livez/', 'a.example:8443', '/livez/'],
    ['http://[::1]:80', '[::1]:80', '/'],
    ['http://a.example?b=1', 'a.example', '/'],
    ['/livez', null, '/livez'],
  ] as const) {
    const parsed = parseTarget(target);
    assert.deepEqual([parsed?.authority, parsed?.path], [authority, path], target);
  }
});

const QUERIES: ReadonlyArray<
  readonly [query: string, ...pairs: ReadonlyArray<readonly [name: string, value: string]>]
> = [
  ['?'],
  ['?&&'],
  ['?a', ['a', '']],
  ['?=1', ['', '1']],
  ['?a=1=2', ['a', '1=2']],
  ['?a=1&a=2&%61=1', ['a', '1'], ['a', '2'], ['a', '1']],
  ['?a=1?b=2', ['a', '1?b=2']],
  ['??a=1', ['?a', '1']],
  ['?a+b=c+d%2B', ['a b', 'c d+']],
  ['?a=%26b%3D1', ['a', '&b=1']],
  ['?a=%00', ['a', '\0']],
  ['?a;b=1', ['a;b', '1']],
  ['?__proto__=1&__proto__=2', ['__proto__', '1'], ['__proto__', '2']],
];

test('a query keeps every value of every name, decoded once', () => {
  for (const [query, ...pairs] of QUERIES)
    assert.deepEqual([...(parseTarget(`/${query}`)?.query ?? [])], pairs, query);
});

/** What `GET /a/b` finds, in one line: the row and its parameters, or why there is none. */
function finderOf(...lines: readonly string[]): (request: string) => string {
  const rows = lines.map((line) => {
    const [method = '', pattern = ''] = line.split(' ');
    return { method, pattern };
  });
  const router = createRouter(rows);
  return (request) => {
    const [method = '', path = ''] = request.split(' ');
    const match = router(method, path.slice(1).split('/').map(decodeURIComponent));
    if (match instanceof Failure)
      return match.code === 'no_such_path' ? '404' : `405 ${match.details.headers?.Allow}`;
    const parameters = Object.entries(match.parameters).map(([name, value]) => ` ${name}=${value}`);
    return `${match.route.method} ${match.route.pattern}${parameters.join('')}`;
  };
}

const ROWS = [
  ...['GET /', 'GET /api/session/', 'GET /api/session/info', 'DELETE /api/session/revoke'],
  ...['DELETE /api/session/{id}/revoke', 'DELETE /api/session/revoke/all'],
  ...['DELETE /api/session/revoke/all/user', 'POST /{one}/{two}/{three}/x', 'GET /page/{page}'],
  ...['GET /page/é', 'GET /page/{page}/b', 'POST /a', 'GET /a', 'DELETE /only/{id}'],
];

const FOUND: Readonly<Record<string, string>> = {
  'GET /api/session': 'GET /api/session/',
  'GET /': 'GET /',
  'DELETE /api/session/revoke': 'DELETE /api/session/revoke',
  'DELETE /api/session/revoke/all': 'DELETE /api/session/revoke/all',
  'DELETE /api/session/revoke/all/user': 'DELETE /api/session/revoke/all/user',
  'DELETE /api/session/7/revoke': 'DELETE /api/session/{id}/revoke id=7',
  // The static branch is tried first and leads nowhere.
  'DELETE /api/session/revoke/revoke': 'DELETE /api/session/{id}/revoke id=revoke',
  'POST /api/session/info/x': 'POST /{one}/{two}/{three}/x one=api two=session three=info',
  'DELETE /api/session/revoke/all/': '404',
  'DELETE /api/session/revoke/all/user/more': '404',
  'GET /api': '404',
  'GET //': '404',
  'GET /API/session': '404',
  'GET /api%2Fsession': '404',
  // A parameter is one segment that is not empty.
  'GET /page/{page}': 'GET /page/{page} page={page}',
  'GET /page/a%2Fb': 'GET /page/{page} page=a/b',
  'GET /page/%C3%A9': 'GET /page/é',
  'GET /page/': '404',
  'GET /page//b': '404',
  'GET /page/1/': '404',
  'GET /page/__proto__': 'GET /page/{page} page=__proto__',
  // Inherited names are neither paths nor methods.
  'GET /constructor': '404',
  'GET /a/toString': '404',
  'constructor /a': '405 GET, HEAD, OPTIONS, POST',
  'HEAD /a': 'GET /a',
  'PUT /a': '405 GET, HEAD, OPTIONS, POST',
  'OPTIONS /a': '405 GET, HEAD, OPTIONS, POST',
  'get /a': '405 GET, HEAD, OPTIONS, POST',
  'HEAD /only/1': '405 DELETE, OPTIONS',
};

test('a request finds its route in any order of the routes', () => {
  for (const rows of [ROWS, ROWS.toReversed(), [...ROWS.slice(5), ...ROWS.slice(0, 5)]]) {
    const find = finderOf(...rows);
    for (const [request, found] of Object.entries(FOUND)) assert.equal(find(request), found);
  }
});

test('a parameter named __proto__ changes no prototype', () => {
  const match = createRouter([{ method: 'GET', pattern: '/{__proto__}' }])('GET', ['evil']);
  assert.ok(!(match instanceof Failure));
  assert.deepEqual(Object.entries(match.parameters), [['__proto__', 'evil']]);
  assert.equal(Object.getPrototypeOf(match.parameters), Object.prototype);
});

test('two routes that match the same requests are rejected, and both are named', () => {
  for (const [one, other] of [
    ['GET /a/{x}', 'GET /a/{y}'],
    ['GET /a/{x}', 'POST /a/{y}'],
    ['GET /b', 'GET /b/'],
  ] as const) {
    const message = `internal error: ${one} and ${other} match the same requests`;
    assert.throws(() => finderOf(one, 'GET /c', other), { message });
  }
  assert.doesNotThrow(() => finderOf('GET /a/{x}', 'POST /a/{x}', 'GET /{a}/b'));
});

const ROW = { ...routeDefaults, summary: '', reply: null, handle: async () => ({ data: null }) };

test('a route that asks for no credential cannot read a large body', () => {
  const body = json(object({ name: text() }));
  const large = { ...ROW, method: 'POST', pattern: '/a', body, maxBodyBytes: () => 1e6 } as const;
  assert.equal(route({ ...large, guard: bearerGuard }).pattern, '/a');
  const message = 'internal error: /a reads a large body without a credential';
  assert.throws(() => route({ ...large, guard: anonymous }), { message });
});

test('a pattern and its schema name the same parameters', () => {
  const page = { ...ROW, method: 'GET', pattern: '/page/{page_id}', guard: anonymous } as const;
  assert.ok(route({ ...page, path: object({ page_id: text() }) }));
  assert.throws(() => route({ ...page, path: object({ id: text() }) }), {
    message: 'internal error: the path schema of /page/{page_id} has the parameters "id"',
  });
});

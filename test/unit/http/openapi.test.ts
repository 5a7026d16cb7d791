/** What the documents say of the rows. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ERRORS } from '../../../src/platform/http/route/errors.ts';
import { readDocument } from '../../support/documents.ts';
import { array, child, documents, object } from '../../support/openapi.ts';

/** Descriptions of replies that are neither the usual success nor an error. */
const NO_CODES = new Set(['The next page', 'The same, for sources that expect no body']);

for (const [name, rows, document] of documents) {
  test(`${name}: the document and the route table have the same rows`, () => {
    const described = Object.entries(object(child(document, 'paths'))).flatMap(([path, item]) =>
      Object.keys(object(item)).map((method) => `${method.toUpperCase()} ${path}`),
    );
    assert.deepEqual(
      described.sort(),
      rows.map(({ method, pattern }) => `${method} ${pattern}`).sort(),
    );
  });

  test(`${name}: each operation lists each error code of its row, by status`, () => {
    for (const row of rows) {
      const responses = child(
        document,
        'paths',
        row.pattern,
        row.method.toLowerCase(),
        'responses',
      );
      const listed = Object.entries(object(responses)).flatMap(([status, response]) =>
        status === String(row.success) || NO_CODES.has(String(child(response, 'description')))
          ? []
          : String(child(response, 'description'))
              .split(', ')
              .map((code) => `${status} ${code}`),
      );
      assert.deepEqual(
        listed.sort(),
        row.errors.map((code) => `${ERRORS[code][0]} ${code}`).sort(),
        `${row.method} ${row.pattern}`,
      );
      assert.equal(typeof child(responses, String(row.success)), 'object');
    }
  });
}

/** The interface's table of error statuses, and what it says of authentication. */
const STATUSES: Readonly<Record<string, readonly number[]>> = {
  'GET /readyz': [200, 500],
  'GET /livez': [200, 500],
  'POST /api/auth/login': [200, 400, 401, 429, 500],
  'POST /api/auth/logout': [200, 400, 500],
  'POST /api/auth/session': [200, 400, 401],
  'GET /api/user/': [200, 401, 500],
  'GET /api/session/': [200, 400, 401, 500],
  'GET /api/session/info': [200, 400, 401],
  'DELETE /api/session/revoke': [200, 400, 401, 500],
  'DELETE /api/session/{session_id}/revoke': [200, 401, 500],
  'DELETE /api/session/revoke/all': [200, 401, 500],
  'DELETE /api/session/revoke/all/user': [200, 401, 500],
  'GET /api/test/': [200, 401],
  'POST /api/auth/password': [200, 400, 401, 403, 429],
  'GET /api/auth/verify': [200, 400, 401, 403],
  'POST /api/user/': [201, 400, 401, 403, 409],
  'GET /api/user/{user_id}': [200, 400, 401, 403, 404],
  'PATCH /api/user/{user_id}': [200, 400, 401, 403, 404, 409],
  'DELETE /api/user/{user_id}': [200, 400, 401, 403, 404, 409],
  'POST /api/user/{user_id}/password': [200, 400, 401, 403, 404],
  'POST /api/key/': [201, 400, 401, 403, 404],
  'GET /api/key/': [200, 400, 401, 403],
  'DELETE /api/key/{key_id}/revoke': [200, 400, 401, 403, 404],
  'GET /api/audit/': [200, 400, 401, 403],
  'POST /api/store/encrypt': [201, 400, 401, 413, 503],
  'POST /api/store/decrypt': [200, 400, 401, 404, 413, 503],
  'GET /api/store': [200, 401, 503],
  'POST /webhook': [200, 400, 401, 413, 415, 503],
};

test('each operation lists the statuses that the interface names', () => {
  const all = documents.map(([, , document]) => document);
  for (const [row, statuses] of Object.entries(STATUSES)) {
    const [method = '', pattern = ''] = row.split(' ');
    const described = all
      .map((document) => child(document, 'paths', pattern, method.toLowerCase(), 'responses'))
      .find(Boolean);
    const missing = statuses.filter((status) => !Object.hasOwn(object(described), status));
    assert.deepEqual(missing, [], row);
  }
});

test('identity describes its envelope and version 0.0.1', () => {
  const document = documents[0]?.[2];
  assert.equal(child(document, 'info', 'version'), '0.0.1');
  const schema = (path: string) =>
    child(
      document,
      'paths',
      path,
      'get',
      'responses',
      '200',
      'content',
      'application/json',
      'schema',
      'required',
    );
  assert.deepEqual(schema('/api/user/'), ['data', '_meta']);
  for (const path of ['/api/session/', '/api/key/', '/api/audit/'])
    assert.deepEqual(schema(path), ['data', '_meta', '_links'], path);
});

test('a list with optional paging describes pagination and links, and requires neither', () => {
  const schema = child(
    documents[0]?.[2],
    'paths',
    '/api/user/',
    'get',
    'responses',
    '200',
    'content',
    'application/json',
    'schema',
    'properties',
  );
  assert.deepEqual(Object.keys(object(schema)), ['data', '_meta', '_links']);
  assert.deepEqual(
    [child(schema, '_meta', 'required'), Object.keys(object(child(schema, '_meta', 'properties')))],
    [['request_id'], ['request_id', 'pagination']],
  );
});

test('identity accepts bearer tokens and keys, and cookies only for forward auth', () => {
  const document = documents[0]?.[2];
  for (const { method, pattern, security } of documents[0]?.[1] ?? []) {
    const described = array(
      child(document, 'paths', pattern, method.toLowerCase(), 'security'),
    ).flatMap((one) => Object.keys(object(one)));
    assert.deepEqual(described, security);
    const expected =
      pattern === '/api/auth/verify' ? ['bearer', 'api_key', 'cookie'] : ['bearer', 'api_key'];
    if (security.length > 0) assert.deepEqual(security, expected, `${method} ${pattern}`);
  }
  const schemes = child(document, 'components', 'securitySchemes');
  assert.deepEqual(child(schemes, 'api_key'), { type: 'apiKey', in: 'header', name: 'X-API-Key' });
  assert.deepEqual(child(schemes, 'cookie'), { type: 'apiKey', in: 'cookie', name: 'session' });
});

const FORM = 'application/x-www-form-urlencoded';
const operationOf = (document: unknown, method: string, path: string) =>
  child(document, 'paths', path, method);

test('a form is described as a form, its next page and its errors as HTML', () => {
  // With the pages. Another test compares the file with the code.
  const document: unknown = JSON.parse(readDocument('src/identity/openapi/with-pages.json'));
  const operation = operationOf(document, 'post', '/login');
  const content = object(child(operation, 'requestBody', 'content'));
  assert.deepEqual(Object.keys(content), [FORM]);
  assert.ok(child(content, FORM, 'schema', 'properties', 'username'));
  assert.ok(child(operation, 'responses', '303', 'headers', 'Location'));
  for (const [status, response] of Object.entries(object(child(operation, 'responses')))) {
    if (Number(status) < 400) continue;
    assert.deepEqual(Object.keys(object(child(response, 'content'))), ['text/html'], status);
  }
});

test('an event may be JSON or a form, and is answered with or without a body', () => {
  const operation = operationOf(documents[2]?.[2], 'post', '/webhook');
  const content = object(child(operation, 'requestBody', 'content'));
  assert.deepEqual(Object.keys(content), ['application/json', FORM]);
  assert.equal(typeof child(operation, 'responses', '204'), 'object');
});

test('a success that is a text has its content type', () => {
  const typesOf = (document: unknown, path: string, method = 'get') =>
    Object.keys(object(child(operationOf(document, method, path), 'responses', '200', 'content')));
  const portal = JSON.parse(readDocument('src/identity/openapi/with-pages.json'));
  const [, secretsDocument, webhookDocument] = documents.map(([, , one]) => one);
  assert.deepEqual(typesOf(portal, '/account'), ['text/html']);
  assert.deepEqual(typesOf(portal, '/login', 'post'), ['text/html']);
  assert.deepEqual(typesOf(portal, '/account/audit.csv'), ['text/csv']);
  assert.deepEqual(typesOf(secretsDocument, '/s/{id}'), ['text/html']);
  assert.deepEqual(typesOf(webhookDocument, '/events/stream'), ['text/event-stream']);
});

test('the form of a text that is checked is described', () => {
  const [identityDocument, secretsDocument] = documents.map(([, , one]) => one);
  const memberOf = (document: unknown, path: string, ...names: string[]) =>
    child(
      operationOf(document, 'post', path),
      ...['requestBody', 'content', 'application/json', 'schema', 'properties'],
      ...names,
    );
  const isAllowed = (schema: unknown, value: string) =>
    new RegExp(String(child(schema, 'pattern'))).test(value);
  const key = Buffer.alloc(32, 0xff).toString('base64url');
  const point = Buffer.concat([Buffer.of(4), Buffer.alloc(64, 0xff)]).toString('base64url');
  const session = 'session:123e4567-e89b-42d3-a456-426614174000';
  for (const [schema, right, wrong] of [
    [memberOf(secretsDocument, '/answer/{id}', 'secret'), key, `${key.slice(0, -1)}9`],
    [memberOf(secretsDocument, '/answer/{id}', 'public_key'), point, `C${point.slice(1)}`],
    [memberOf(secretsDocument, '/api/store/request', 'digest'), key, ''],
    [memberOf(secretsDocument, '/api/store/request', 'title'), 'a title', 'a\nb'],
    [memberOf(identityDocument, '/api/auth/logout', 'session'), session, ''],
    [memberOf(identityDocument, '/api/auth/logout', 'session'), btoa(session), 'session'],
    [memberOf(identityDocument, '/api/key/', 'groups', 'items'), 'a-group', 'A group'],
    [memberOf(identityDocument, '/api/user/', 'email'), 'ada@example.org', 'ada'],
  ] as const) {
    assert.equal(typeof child(schema, 'pattern'), 'string');
    assert.deepEqual([isAllowed(schema, right), isAllowed(schema, wrong)], [true, false]);
  }
});

test('a default has the type of its member', () => {
  const fields = child(
    operationOf(
      JSON.parse(readDocument('src/identity/openapi/with-pages.json')),
      'post',
      '/account/users',
    ),
    ...['requestBody', 'content', FORM, 'schema', 'properties'],
  );
  assert.deepEqual(
    [child(fields, 'groups', 'type'), child(fields, 'groups', 'default')],
    ['string', ''],
  );
});

test('only security schemes that an operation uses are described', () => {
  const portal = JSON.parse(readDocument('src/identity/openapi/with-pages.json'));
  const schemes = (document: unknown) =>
    Object.keys(object(child(document, 'components', 'securitySchemes')));
  assert.deepEqual(schemes(documents[0]?.[2]), ['bearer', 'api_key', 'cookie']);
  assert.deepEqual(schemes(portal), ['bearer', 'api_key', 'portal_cookie']);
});

test('headers that clients need are described', () => {
  const [identityDocument, secretsDocument, webhookDocument] = documents.map(([, , one]) => one);
  const headers = (document: unknown, path: string, status: string, method = 'get') =>
    Object.keys(object(child(operationOf(document, method, path), 'responses', status, 'headers')));
  assert.deepEqual(headers(webhookDocument, '/events', '200'), ['Link']);
  assert.deepEqual(headers(secretsDocument, '/api/store', '200'), ['Link']);
  assert.deepEqual(headers(secretsDocument, '/api/store', '503'), ['Retry-After']);
  assert.deepEqual(headers(identityDocument, '/api/auth/login', '429', 'post'), ['Retry-After']);
  assert.deepEqual(headers(identityDocument, '/api/auth/verify', '401'), ['WWW-Authenticate']);
  assert.equal(headers(identityDocument, '/api/auth/verify', '200').length, 10);
});

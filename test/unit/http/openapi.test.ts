/** The documents: valid OpenAPI 3.0.3, and what they say of the rows. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ERRORS } from '../../../src/platform/http/route/errors.ts';
import type { Route } from '../../../src/platform/http/route/route.ts';
import { createRoutes as createIdentityRoutes } from '../../../src/identity/routes.ts';
import { TABLES } from '../../../scripts/routes.ts';
import { readDocument } from '../../support/documents.ts';
import { REQUEST } from '../../support/request-info.ts';

type Json = Readonly<Record<string, unknown>>;
type Row = Omit<Route<unknown>, 'answer'>;

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const object = (value: unknown): Json => (isObject(value) ? value : {});
const array = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const child = (value: unknown, ...names: readonly string[]): unknown =>
  names.reduce(
    (at: unknown, name) => (Object.hasOwn(object(at), name) ? object(at)[name] : undefined),
    value,
  );
const entriesOf = (value: unknown, ...names: readonly string[]) =>
  Object.entries(object(child(value, ...names)));
const namesIn = (value: unknown, ...names: readonly string[]) =>
  Object.keys(object(child(value, ...names)));

/** The document as it is served. Its row has no use for a service. */
async function documentOf(rows: ReadonlyArray<Route<never>>): Promise<unknown> {
  const row = rows.find(({ pattern }) => pattern === '/openapi.json');
  const reply = await row?.answer(REQUEST, {} as never, async () => Buffer.alloc(0));
  assert.ok(reply && 'text' in reply && reply.text instanceof Uint8Array);
  assert.match(reply.contentType, /^application\/json/);
  return JSON.parse(Buffer.from(reply.text).toString());
}

const identityRows = await createIdentityRoutes(null);
const { secrets: secretsTable, webhook: webhookTable } = TABLES;
const identity = await documentOf(identityRows);
const secrets = await documentOf(secretsTable?.all ?? []);
const webhook = await documentOf(webhookTable?.all ?? []);
/** Identity with its pages. */
const portal: unknown = JSON.parse(readDocument('src/identity/openapi/with-pages.json'));

const SERVED: ReadonlyArray<readonly [name: string, rows: readonly Row[], document: unknown]> = [
  ['identity', identityRows, identity],
  ['secrets', secretsTable?.all ?? [], secrets],
  ['webhook', webhookTable?.all ?? [], webhook],
];

const operationsOf = (document: unknown) =>
  entriesOf(document, 'paths').flatMap(([path, item]) =>
    entriesOf(item).map(([method, operation]) => ({ path, method, operation })),
  );

/** @param row such as `GET /livez` */
function operationOf(document: unknown, row: string, ...names: readonly string[]): unknown {
  const [method = '', path = ''] = row.split(' ');
  return child(document, 'paths', path, method.toLowerCase(), ...names);
}

/** What OpenAPI 3.0.3 forbids of the schemas and references below a value. */
function schemaProblems(document: unknown, value: unknown, at: string): string[] {
  const { $ref: link, enum: words, nullable, type, items, required, properties } = object(value);
  const isBroken = {
    'leads nowhere': typeof link === 'string' && !child(document, ...link.slice(2).split('/')),
    'admits no value': Array.isArray(words) && words.length === 0,
    'is nullable without a type': nullable === true && typeof type !== 'string',
    'has no items': type === 'array' && !isObject(items),
    'requires what it does not describe': array(required).some(
      (name) => !Object.hasOwn(object(properties), String(name)),
    ),
  };
  const own = entriesOf(isBroken).filter(([, is]) => is === true);
  return [
    ...own.map(([problem]) => `${at} ${problem}`),
    ...(typeof value === 'object' && value !== null ? Object.entries(value) : []).flatMap(
      ([name, one]) => schemaProblems(document, one, `${at}/${name}`),
    ),
  ];
}

for (const [name, rows, document] of SERVED) {
  test(`${name}: the document is valid OpenAPI 3.0.3`, () => {
    assert.equal(child(document, 'openapi'), '3.0.3');
    for (const member of ['title', 'version'])
      assert.equal(typeof child(document, 'info', member), 'string');
    const operations = operationsOf(document);
    const ids = operations.map(({ operation }) => child(operation, 'operationId'));
    const shapes = namesIn(document, 'paths').map((path) =>
      path.replace(/\{[^}]*\}/g, '{}').replace(/(.)\/$/, '$1'),
    );
    for (const all of [ids, shapes]) assert.equal(new Set(all).size, all.length);
    const schemes = namesIn(document, 'components', 'securitySchemes');
    for (const { path, method, operation } of operations) {
      const at = `${method} ${path}`;
      const parameters = array(child(operation, 'parameters')).map(object);
      const inPath = parameters.filter((one) => one.in === 'path' && one.required === true);
      const inPattern = Array.from(path.matchAll(/\{([^}]+)\}/g), ([, name]) => name);
      assert.deepEqual(inPath.map((one) => one.name).sort(), inPattern.sort(), at);
      const names = parameters.map((one) => `${one.in} ${one.name}`);
      assert.equal(new Set(names).size, names.length, at);
      const used = array(child(operation, 'security')).flatMap((one) => namesIn(one));
      assert.ok(
        used.every((scheme) => schemes.includes(scheme)),
        at,
      );
      assert.ok(child(operation, 'summary'), at);
      assert.ok(
        entriesOf(operation, 'responses').every(([, one]) => child(one, 'description')),
        at,
      );
    }
    assert.deepEqual(schemaProblems(document, document, '#'), []);
  });

  test(`${name}: the document has each row, its credentials and each error code, by status`, () => {
    const described = operationsOf(document).map(({ path, method }) => `${method} ${path}`);
    const named = rows.map(({ method, pattern }) => `${method.toLowerCase()} ${pattern}`);
    assert.deepEqual(described.sort(), named.sort());
    for (const row of rows) {
      const at = `${row.method} ${row.pattern}`;
      const security = array(operationOf(document, at, 'security')).flatMap((one) => namesIn(one));
      assert.deepEqual(security, row.security, at);
      const listed = entriesOf(operationOf(document, at, 'responses'))
        .filter(([status]) => Number(status) >= 400)
        .flatMap(([status, response]) =>
          String(child(response, 'description'))
            .split(', ')
            .map((code) => `${status} ${code}`),
        );
      const codes = row.errors.map((code) => `${ERRORS[code][0]} ${code}`);
      const errors = codes.filter((code) => code >= '400');
      assert.deepEqual(listed.sort(), errors.sort(), at);
      assert.equal(typeof operationOf(document, at, 'responses', String(row.success)), 'object');
    }
  });
}

const FORM = 'application/x-www-form-urlencoded';
const SCHEMA = 'responses.200.content.application/json.schema';
const LIST = ['data', '_meta', '_links'];

/** Of operations: a place, and the names that are there. */
const DESCRIBED: ReadonlyArray<
  readonly [document: unknown, row: string, at: string, ...names: readonly string[]]
> = [
  [identity, 'GET /api/session/', `${SCHEMA}.required`, ...LIST],
  [identity, 'GET /api/key/', `${SCHEMA}.required`, ...LIST],
  [identity, 'GET /api/audit/', `${SCHEMA}.required`, ...LIST],
  [identity, 'GET /api/user/', `${SCHEMA}.required`, 'data', '_meta'],
  [identity, 'GET /api/user/', `${SCHEMA}.properties`, ...LIST],
  [identity, 'GET /api/user/', `${SCHEMA}.properties._meta.required`, 'request_id'],
  [identity, 'GET /api/user/', `${SCHEMA}.properties._meta.properties`, 'request_id', 'pagination'],
  // A form is described as a form, its next page and its errors as HTML.
  [portal, 'POST /login', 'requestBody.content', FORM],
  [portal, 'POST /login', 'responses.303.headers', 'Location'],
  [portal, 'POST /login', 'responses.200.content', 'text/html'],
  [portal, 'POST /login', 'responses.400.content', 'text/html'],
  [portal, 'POST /login', 'responses.401.content', 'text/html'],
  [webhook, 'POST /webhook', 'requestBody.content', 'application/json', FORM],
  [portal, 'GET /account', 'responses.200.content', 'text/html'],
  [portal, 'GET /account/audit.csv', 'responses.200.content', 'text/csv'],
  [secrets, 'GET /s/{id}', 'responses.200.content', 'text/html'],
  [webhook, 'GET /events/stream', 'responses.200.content', 'text/event-stream'],
  // Headers that clients need.
  [webhook, 'GET /events', 'responses.200.headers', 'Link'],
  [secrets, 'GET /api/store', 'responses.200.headers', 'Link'],
  [secrets, 'GET /api/store', 'responses.503.headers', 'Retry-After'],
  [identity, 'POST /api/auth/login', 'responses.429.headers', 'Retry-After'],
  [identity, 'GET /api/auth/verify', 'responses.401.headers', 'WWW-Authenticate'],
];

test('envelopes, content types, forms and headers are described', () => {
  for (const [document, row, at, ...names] of DESCRIBED) {
    const found = operationOf(document, row, ...at.split('.'));
    assert.deepEqual(Array.isArray(found) ? found : namesIn(found), names, `${row} ${at}`);
  }
  const proxied = operationOf(identity, 'GET /api/auth/verify', 'responses', '200', 'headers');
  assert.equal(namesIn(proxied).length, 10);
  const users = ['requestBody', 'content', FORM, 'schema', 'properties', 'groups', 'default'];
  assert.equal(operationOf(portal, 'POST /account/users', ...users), '');
  assert.equal(typeof operationOf(webhook, 'POST /webhook', 'responses', '204'), 'object');
});

test('identity describes its version and what it accepts as a credential', () => {
  assert.equal(child(identity, 'info', 'version'), '0.0.1');
  const schemes = child(identity, 'components', 'securitySchemes');
  assert.deepEqual(namesIn(schemes), ['bearer', 'api_key', 'cookie']);
  assert.deepEqual(child(schemes, 'api_key'), { type: 'apiKey', in: 'header', name: 'X-API-Key' });
  assert.deepEqual(child(schemes, 'cookie'), { type: 'apiKey', in: 'cookie', name: 'session' });
  const withCookie = identityRows.filter(({ security }) => security.includes('cookie'));
  assert.deepEqual(
    withCookie.map(({ pattern }) => pattern),
    ['/api/auth/verify'],
  );
  // Only schemes that an operation uses are described.
  const ofPages = namesIn(portal, 'components', 'securitySchemes');
  assert.deepEqual(ofPages, ['bearer', 'api_key', 'portal_cookie']);
});

test('the form of a text that is checked is described', () => {
  const key = Buffer.alloc(32, 0xff).toString('base64url');
  const point = Buffer.concat([Buffer.of(4), Buffer.alloc(64, 0xff)]).toString('base64url');
  const session = 'session:123e4567-e89b-42d3-a456-426614174000';
  for (const [document, row, member, right, wrong] of [
    [secrets, '/answer/{id}', 'secret', key, `${key.slice(0, -1)}9`],
    [secrets, '/answer/{id}', 'public_key', point, `C${point.slice(1)}`],
    [secrets, '/api/store/request', 'digest', key, ''],
    [secrets, '/api/store/request', 'title', 'a title', 'a\nb'],
    [identity, '/api/auth/logout', 'session', session, ''],
    [identity, '/api/auth/logout', 'session', btoa(session), 'session'],
    [identity, '/api/key/', 'groups', 'a-group', 'A group'],
    [identity, '/api/user/', 'email', 'ada@example.org', 'ada'],
  ] as const) {
    const schema = operationOf(
      document,
      `POST ${row}`,
      'requestBody',
      'content',
      'application/json',
    );
    const described = child(schema, 'schema', 'properties', member);
    const pattern = child(child(described, 'items') ?? described, 'pattern');
    assert.equal(typeof pattern, 'string', member);
    const isAllowed = (text: string) => new RegExp(String(pattern)).test(text);
    assert.deepEqual([isAllowed(right), isAllowed(wrong)], [true, false], member);
  }
});

/** An unknown query parameter, such as a misspelled filter, never changes what a request does. */
import assert from 'node:assert/strict';
import { createECDH, randomBytes, randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import type { Route } from '../../src/platform/http/route/route.ts';
import { createRoutes as createIdentityRoutes } from '../../src/identity/routes.ts';
import { createRoutes } from '../../src/secrets/routes.ts';
import { createPlainRoutes } from '../../src/webhook/plain.ts';
import { createRoutes as createWebhookRoutes } from '../../src/webhook/routes.ts';
import { createDatabase } from '../support/database.ts';
import { ask, AUTH_TOKEN, logIn, startGatehouse } from '../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN } from '../support/inbox.ts';
import { SITE } from '../support/service-context.ts';

const identity = await createIdentityRoutes(null);

const secrets = await createRoutes(
  {
    expires_in: { default: 60, max: 60 },
    max_reads: { default: 1, max: 1 },
    password: { max_bytes: 64_512 },
  },
  SITE,
);
const webhook = await createWebhookRoutes(SITE);
const plain = createPlainRoutes();

/** Probes, documents and pages only read, and the senders of events choose their own parameters. */
const IGNORED = [
  'GET /',
  'GET /answer/{id}',
  'GET /inbox',
  'GET /livez',
  'GET /openapi.json',
  'GET /pages/{file}',
  'GET /r/{id}',
  'GET /readyz',
  'GET /request',
  'GET /request/{id}',
  'GET /s/{id}',
  'POST /webhook',
];
const isRefusing = ({ query }: Pick<Route<never>, 'query'>) =>
  query.jsonSchema.additionalProperties === false;
const nameOf = ({ method, pattern }: Pick<Route<never>, 'method' | 'pattern'>) =>
  `${method} ${pattern}`;

const database = await createDatabase();
await addOperator(database.sql);
const { url } = await startGatehouse({ after }, ['identity', 'secrets', 'webhook'], database.url, {
  SHARE_PAGES: 'on',
});
const session = await logIn(url.identity);

/** An open request: the guard of an answer asks for the key of one before the query is read. */
const linkKey = randomBytes(32).toString('base64url');
const asked = await ask('POST', `${url.secrets}/api/store/request`, {
  bearer: AUTH_TOKEN,
  body: {
    title: 'The password of the printer',
    kind: 'text',
    public_key: createECDH('prime256v1').generateKeys('base64url'),
    digest: linkKey,
  },
});
assert.equal(asked.status, 201, asked.text);

test('every other route rejects unknown parameters', () => {
  const ignoring = [...identity, ...secrets, ...webhook, ...plain]
    .filter((row) => !isRefusing(row))
    .map(nameOf);
  assert.deepEqual([...new Set(ignoring)].sort(), IGNORED);
});

for (const [service, rows, bearer, id] of [
  ['identity', identity, session, randomUUID()],
  ['secrets', secrets, AUTH_TOKEN, asked.json.id],
  ['webhook', webhook, OPERATOR_TOKEN, randomUUID()],
] as const) {
  test(`${service}: 400 names the unknown parameter`, async () => {
    for (const row of rows.filter(isRefusing)) {
      const target = `${url[service]}${row.pattern.replace(/\{\w+\}/g, id)}?unknown=1`;
      const { status, json } = await ask(row.method, target, {
        bearer,
        headers: { 'x-link-key': linkKey },
        ...(row.body.schema ? { body: {} } : {}),
      });
      assert.deepEqual([status, json.error.code], [400, 'invalid_query'], nameOf(row));
      assert.deepEqual(
        json.error.fields[0],
        { path: 'unknown', message: 'is not a known parameter' },
        nameOf(row),
      );
    }
  });
}

test('DELETE /api/session/revoke/all?user=… ends no session', async () => {
  const { status, json } = await ask(
    'DELETE',
    `${url.identity}/api/session/revoke/all?user=${randomUUID()}`,
    { bearer: session },
  );
  assert.deepEqual(
    [status, json.error.fields],
    [400, [{ path: 'user', message: 'is not a known parameter' }]],
  );
  assert.equal((await ask('GET', `${url.identity}/api/test/`, { bearer: session })).status, 200);
});

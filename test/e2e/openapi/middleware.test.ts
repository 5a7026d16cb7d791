/** The middleware of embedding.md, in Express and in Fastify. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { after, test } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { start } from '../../../src/index.ts';
import { createEmptyDatabase } from '../../support/database.ts';
import { readDocument } from '../../support/documents.ts';
import { ADMIN_PASSWORD, ask, logIn, variables } from '../../support/gatehouse.ts';
import { runHere } from './tools.ts';

const PACKAGES = ['express@5.3.0', 'fastify@5.12.8'];
const directory = makeTemporary(tmpdir(), 'gatehouse-middleware');
after(() => removeTemporary(directory));
writeFileSync(join(directory, 'package.json'), '{ "private": true }');
const installed = runHere(directory, 'npm', [
  ...['install', '--ignore-scripts', '--no-audit', '--no-fund'],
  ...PACKAGES,
]);
assert.equal(installed.code, 0, installed.output);
const load = createRequire(join(directory, 'package.json'));

const database = await createEmptyDatabase({ after });
const gatehouse = await start({
  services: ['identity'],
  settings: { ...variables(database.url), ADMIN_PASSWORD },
  output: { stdout: new PassThrough(), stderr: new PassThrough() },
});
after(() => gatehouse.stop());
await gatehouse.ready;
const identity = `http://127.0.0.1:${gatehouse.ports.identity}`;
const session = await logIn(identity);
const made = await ask('POST', `${identity}/api/key/`, {
  bearer: session,
  body: { scopes: ['orders:read'] },
});
const { key, user_id } = made.json.data;

const section = readDocument('docs/embedding.md').split('\n## verify\n')[1] ?? '';
const blocks = [...section.matchAll(/^```js\n([\s\S]*?)^```$/gm)].map(([, text = '']) => text);
const [common = '', ofFastify = ''] = blocks;
const [ofExpress = ''] = /app\.get\([^`]*handler\)/.exec(section) ?? [];

/** Runs the text of the document, which adds a route to the program. */
const addRoute = (text: string, app: unknown, handler: unknown): void =>
  new Function('gatehouse', 'app', 'handler', text)(gatehouse, app, handler);

async function assertGuards(port: number) {
  const url = `http://127.0.0.1:${port}/orders`;
  const admitted = await ask('GET', url, { headers: { 'x-api-key': key } });
  assert.deepEqual(
    [admitted.status, admitted.json],
    [200, { id: user_id, scopes: ['orders:read'] }],
  );
  const anonymous = await ask('GET', url);
  assert.deepEqual([anonymous.status, anonymous.json.error.code], [401, 'unauthorized']);
  assert.equal(anonymous.headers.get('www-authenticate'), 'Bearer');
  assert.equal((await ask('GET', url, { bearer: session })).status, 403);
}

test('Express admits who has the scope', async (t) => {
  const app = load('express')();
  addRoute(
    `${common}; ${ofExpress}`,
    app,
    (request: { caller: unknown }, response: { json(value: unknown): void }) =>
      response.json(request.caller),
  );
  const server: Server = app.listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  await assertGuards((server.address() as AddressInfo).port);
});

test('Fastify admits who has the scope', async (t) => {
  const app = load('fastify')();
  t.after(() => app.close());
  addRoute(ofFastify, app, async (request: { caller: unknown }) => request.caller);
  await app.listen({ port: 0, host: '127.0.0.1' });
  await assertGuards(app.server.address().port);
});

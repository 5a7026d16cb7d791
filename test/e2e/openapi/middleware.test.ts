/** The hook of embedding.md in Fastify. test/program/embedding.test.ts has the middleware. */
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { after, test } from 'node:test';
import { start } from '../../../src/index.ts';
import { createEmptyDatabase } from '../../support/database.ts';
import { readDocument } from '../../support/documents.ts';
import { ask, logIn, variables } from '../../support/gatehouse.ts';
import { installPackages } from '../tools.ts';

const load = createRequire(join(installPackages('fastify@5.12.8'), 'index.js'));
const database = await createEmptyDatabase({ after });
const gatehouse = await start({
  services: ['identity'],
  settings: variables(database.url),
  output: { stdout: new PassThrough(), stderr: new PassThrough() },
});
after(() => gatehouse.stop());
await gatehouse.ready;

test('Fastify admits who has the scope', async (t) => {
  const identity = `http://127.0.0.1:${gatehouse.ports.identity}`;
  const session = await logIn(identity);
  const scopes = ['orders:read'];
  const made = await ask('POST', `${identity}/api/key/`, { bearer: session, body: { scopes } });
  const { key, user_id: id } = made.json.data;
  const document = readDocument('docs/embedding.md');
  const [, hook = ''] = /\nFor Fastify, as a hook:\n\n```js\n([^`]*)```$/m.exec(document) ?? [];
  const app = load('fastify')();
  t.after(() => app.close());
  // The text of the document, which adds a route to the program.
  const addRoute = new Function('gatehouse', 'app', 'handler', hook);
  addRoute(gatehouse, app, async ({ caller }: Readonly<{ caller: unknown }>) => caller);
  await app.listen({ port: 0, host: '127.0.0.1' });
  const url = `http://127.0.0.1:${app.server.address().port}/orders`;
  const admitted = await ask('GET', url, { headers: { 'x-api-key': key } });
  assert.deepEqual([admitted.status, admitted.json], [200, { id, scopes }]);
  const refused = await ask('GET', url);
  assert.deepEqual([refused.status, refused.json.error.code], [401, 'unauthorized']);
  assert.equal(refused.headers.get('www-authenticate'), 'Bearer');
  assert.equal((await ask('GET', url, { bearer: session })).status, 403);
});

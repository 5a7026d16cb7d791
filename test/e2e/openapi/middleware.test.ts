/** The middleware of embedding.md, in Express and in Fastify. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { after, test } from 'node:test';
import { start } from '../../../src/index.ts';
import { createEmptyDatabase } from '../../support/database.ts';
import { readDocument } from '../../support/documents.ts';
import { ADMIN_PASSWORD, ask, logIn, variables } from '../../support/gatehouse.ts';
import { listenOn } from '../../support/ports.ts';
import { installPackages } from '../tools.ts';

const load = createRequire(join(installPackages('express@5.3.0', 'fastify@5.12.8'), 'index.js'));
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
  const caller = { id: user_id, scopes: ['orders:read'] };
  assert.deepEqual([admitted.status, admitted.json], [200, caller]);
  const { status, json, headers } = await ask('GET', url);
  assert.deepEqual(
    [status, json.error.code, headers.get('www-authenticate')],
    [401, 'unauthorized', 'Bearer'],
  );
  assert.equal((await ask('GET', url, { bearer: session })).status, 403);
}

type Asked = Readonly<{ caller: unknown }>;

test('Express admits who has the scope', async (t) => {
  const app = load('express')();
  const handler = ({ caller }: Asked, response: { json(value: unknown): void }) =>
    response.json(caller);
  addRoute(`${common}; ${ofExpress}`, app, handler);
  await assertGuards(await listenOn(t, createServer(app)));
});

test('Fastify admits who has the scope', async (t) => {
  const app = load('fastify')();
  t.after(() => app.close());
  addRoute(ofFastify, app, async ({ caller }: Asked) => caller);
  await app.listen({ port: 0, host: '127.0.0.1' });
  await assertGuards(app.server.address().port);
});

/** A client that is generated from the documents compiles, and what it gets is what it expects. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { createDatabase } from '../../support/database.ts';
import {
  ADMIN_PASSWORD,
  ask,
  AUTH_TOKEN,
  startGatehouse,
  WEBHOOK_TOKEN,
} from '../../support/gatehouse.ts';
import { readDocument } from '../../support/documents.ts';
import { addOperator, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { PROGRAM } from './program.ts';
import { runHere } from './tools.ts';

const PACKAGES = ['openapi-typescript@7.13.0', 'openapi-fetch@0.17.0', 'typescript@5.9.3'];
const FLAGS = ['--ignore-scripts', '--no-package-lock', '--no-audit', '--no-fund'];
const SERVICES = ['identity', 'secrets', 'webhook'] as const;

interface Client {
  useIdentity(
    given: object,
  ): Promise<Readonly<{ session: string; total: number; id: string; code: string }>>;
  useSecrets(
    given: object,
    text: string,
  ): Promise<Readonly<{ id: string; listed: string[]; text: string; code: string }>>;
  useWebhook(
    given: object,
    event: string,
  ): Promise<Readonly<{ sent: string[]; listed: object[]; link: string; name: string }>>;
}

const directory = makeTemporary(tmpdir(), 'gatehouse-client');
after(() => removeTemporary(directory));

function run(name: string, words: readonly string[]) {
  const { code, output } = runHere(directory, name, words);
  assert.equal(code, 0, output);
}
const bin = (name: string) => join(directory, 'node_modules/.bin', name);

// Without a manifest npm would install into a project in a parent directory.
writeFileSync(join(directory, 'package.json'), '{ "private": true, "type": "module" }');
run('npm', ['install', ...FLAGS, ...PACKAGES]);

const database = await createDatabase();
const { url } = await startGatehouse({ after }, SERVICES, database.url);
// The start makes a sender of WEBHOOK_TOKEN only if there is no token yet.
await addOperator(database.sql);
for (const name of SERVICES) {
  const document = join(directory, `${name}.json`);
  writeFileSync(document, (await ask('GET', `${url[name]}/openapi.json`)).text);
  run(bin('openapi-typescript'), [document, '--output', join(directory, `${name}.ts`)]);
}
const program = join(directory, 'program.ts');
writeFileSync(program, PROGRAM);
/** The example of the documents, with the types that were just made. */
const [, shown = ''] = /^```ts\n([\s\S]*?)^```$/m.exec(readDocument('docs/backends.md')) ?? [];
const example = join(directory, 'example.ts');
writeFileSync(example, shown.replace('gatehouse-services/identity', './identity.js'));
const OPTIONS = {
  target: 'es2022',
  module: 'nodenext',
  lib: 'es2022,dom,dom.iterable',
  outDir: join(directory, 'out'),
};
const words = Object.entries(OPTIONS).flatMap(([name, value]) => [`--${name}`, value]);
const STRICT = ['--strict', '--exactOptionalPropertyTypes', '--noUncheckedIndexedAccess'];
run(bin('tsc'), [...STRICT, ...words, program, example]);
const client: Client = await import(pathToFileURL(join(directory, 'out/program.js')).href);

const given = {
  url,
  password: ADMIN_PASSWORD,
  token: { secrets: AUTH_TOKEN, sender: WEBHOOK_TOKEN, operator: OPERATOR_TOKEN },
};

test('the example of backends.md is compiled with the types of identity', () => {
  assert.match(shown, /import type \{ paths \} from 'gatehouse-services\/identity'/);
  assert.ok(shown.trim().split('\n').length <= 6);
});

test('identity: logs in, lists sessions, and reads the code of an error', async () => {
  const { session, total, id, code } = await client.useIdentity(given);
  const { json } = await ask('POST', `${url.identity}/api/auth/session`, { body: { session } });
  assert.deepEqual([total, id, code], [1, json.data.id, 'not_found']);
});

test('secrets: stores a secret, lists it, and reads it once', async () => {
  const { id, ...read } = await client.useSecrets(given, 'the text of a secret');
  assert.deepEqual(read, { listed: [id], text: 'the text of a secret', code: 'not_found' });
});

test('webhook: sends events, and finds them in a list by page', async () => {
  const { sent, listed, link, name } = await client.useWebhook(given, 'page.updated');
  const [, last] = sent;
  assert.deepEqual(listed, [{ id: last, status: 'stored' }]);
  assert.match(link, new RegExp(`after=${last}.*rel="next"`));
  assert.equal(name, 'page.updated');
});

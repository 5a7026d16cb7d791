/** A client that is generated from the documents compiles, and what it gets is what it expects. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { readDocument } from '../../support/documents.ts';
import { ADMIN_PASSWORD, ask, AUTH_TOKEN, launch, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { SERVICES } from '../../support/settings.ts';
import { PROGRAM } from './program.ts';
import { installPackages, runTool } from '../tools.ts';

const PACKAGES = ['openapi-typescript@7.13.0', 'openapi-fetch@0.17.0', 'typescript@5.9.3'];
const directory = installPackages(...PACKAGES);
const at = (name: string) => join(directory, name);
function run(name: string, ...words: readonly string[]): void {
  const { code, output } = runTool(at(`node_modules/.bin/${name}`), words, {}, { cwd: directory });
  assert.equal(code, 0, output);
}

const gatehouse = await launch(SERVICES);
// The start makes a sender of WEBHOOK_TOKEN only if there is no token yet.
await addOperator(gatehouse.sql);
for (const name of SERVICES) {
  writeFileSync(at(`${name}.json`), (await ask('GET', `${gatehouse[name]}/openapi.json`)).text);
  run('openapi-typescript', at(`${name}.json`), '--output', at(`${name}.ts`));
}
writeFileSync(at('program.ts'), PROGRAM);
/** The example of the documents, with the types that were just made. */
const [, shown = ''] = /^```ts\n([\s\S]*?)^```$/m.exec(readDocument('docs/backends.md')) ?? [];
assert.match(shown, /import type \{ paths \} from 'gatehouse-services\/identity'/);
writeFileSync(at('example.ts'), shown.replace('gatehouse-services/identity', './identity.js'));
const OPTIONS =
  '--target es2022 --module nodenext --lib es2022,dom,dom.iterable --outDir out ' +
  '--strict --exactOptionalPropertyTypes --noUncheckedIndexedAccess';
run('tsc', ...OPTIONS.split(' '), at('program.ts'), at('example.ts'));
const client = await import(pathToFileURL(at('out/program.js')).href);

const given = {
  url: gatehouse.url,
  password: ADMIN_PASSWORD,
  token: { secrets: AUTH_TOKEN, sender: WEBHOOK_TOKEN, operator: OPERATOR_TOKEN },
};

test('identity: logs in, lists sessions, and reads the code of an error', async () => {
  const { session, ...read } = await client.useIdentity(given);
  const body = { session };
  const { json } = await ask('POST', `${gatehouse.identity}/api/auth/session`, { body });
  assert.deepEqual(read, { total: 1, id: json.data.id, code: 'not_found' });
});

test('secrets: stores a secret, lists it, and reads it once', async () => {
  const { id, ...read } = await client.useSecrets(given, 'the text of a secret');
  assert.deepEqual(read, { listed: [id], text: 'the text of a secret', code: 'not_found' });
});

test('webhook: sends events, and finds them in a list by page', async () => {
  const { last, link, ...read } = await client.useWebhook(given, 'page.updated');
  assert.deepEqual(read, { listed: [{ id: last, status: 'stored' }], name: 'page.updated' });
  assert.match(link, new RegExp(`after=${last}.*rel="next"`));
});

/** Two linters accept the documents of the services, and a client that is made of them compiles. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { readDocument } from '../../support/documents.ts';
import { root } from '../../support/process.ts';
import { SERVICES } from '../../support/settings.ts';
import { installPackages, runTool } from '../tools.ts';

const directory = installPackages(
  ...['openapi-typescript@7.13.0', 'openapi-fetch@0.17.0', 'typescript@5.9.3'],
  ...['@redocly/cli@2.77.0', '@stoplight/spectral-cli@6.16.3'],
);
const at = (name: string) => join(directory, name);
/** Nothing is sent to the vendor of a linter. */
const QUIET = { REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' };
function run(name: string, ...words: readonly string[]): void {
  const program = at(`node_modules/.bin/${name}`);
  const { code, output } = runTool(program, words, QUIET, { cwd: directory });
  assert.equal(code, 0, output);
}

/** A file that a service serves. */
const served = (service: string, name: string) =>
  join(root, 'src', service, `openapi/${name}.json`);
/** Their configurations say what is off, and why. */
const configuration = (name: string) => join(import.meta.dirname, name);
const LINTERS = {
  redocly: ['lint', '--config', configuration('redocly.yaml')],
  spectral: ['lint', '--fail-severity=hint', '--ruleset', configuration('spectral.yaml')],
};

/** What a program of others may rely on, and mistakes that its compiler finds. */
const PROGRAM = `
import createClient from 'openapi-fetch';
import type { paths as Secrets } from './secrets.js';
import type { paths as Webhook } from './webhook.js';

const secrets = createClient<Secrets>();
const params = { query: { id: crypto.randomUUID() } };
const opened = await secrets.POST('/api/store/decrypt', { params, body: { secret: 'x' } });
export const text: string | undefined = opened.data?.password;
export const code: string | undefined = opened.error?.error.code;
// @ts-expect-error the id is required
await secrets.POST('/api/store/decrypt', { body: { secret: 'x' } });
// @ts-expect-error there is no such member
await secrets.POST('/api/store/encrypt', { body: { text: 'x' } });

const webhook = createClient<Webhook>();
const page = await webhook.GET('/events', { params: { query: { limit: 1 } } });
export const statuses: string[] | undefined = page.data?.map(({ status }) => status);
// @ts-expect-error there is no such status
await webhook.GET('/events', { params: { query: { status: 'lost' } } });
`;

for (const [linter, words] of Object.entries(LINTERS)) {
  test(`${linter} accepts the documents that are served`, () => {
    const files = SERVICES.flatMap((service) => [
      served(service, 'with-pages'),
      served(service, 'without-pages'),
    ]);
    run(linter, ...words, ...files, served('webhook', 'plain'));
  });
}

test('a program with generated clients compiles, and the example of the documents', () => {
  for (const service of SERVICES)
    run('openapi-typescript', served(service, 'with-pages'), '--output', at(`${service}.ts`));
  writeFileSync(at('program.ts'), PROGRAM);
  const [, shown = ''] = /^```ts\n([\s\S]*?)^```$/m.exec(readDocument('docs/backends.md')) ?? [];
  assert.match(shown, /import type \{ paths \} from 'gatehouse-services\/identity'/);
  writeFileSync(at('example.ts'), shown.replace('gatehouse-services/identity', './identity.js'));
  const options =
    '--target es2022 --module nodenext --lib es2022,dom,dom.iterable --noEmit ' +
    '--strict --exactOptionalPropertyTypes --noUncheckedIndexedAccess';
  run('tsc', ...options.split(' '), at('program.ts'), at('example.ts'));
});

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

for (const [linter, words] of Object.entries(LINTERS)) {
  test(`${linter} accepts the documents that are served`, () => {
    const files = SERVICES.flatMap((service) => [
      served(service, 'with-pages'),
      served(service, 'without-pages'),
    ]);
    run(linter, ...words, ...files, served('webhook', 'plain'));
  });
}

/** What a program of others may rely on, and mistakes that its compiler finds. */
const PROGRAM = `
import createClient from 'openapi-fetch';
import type { paths as Identity } from './identity.js';
import type { paths as Secrets } from './secrets.js';
import type { paths as Webhook } from './webhook.js';

export async function useIdentity(client: ReturnType<typeof createClient<Identity>>) {
  const body = { username: 'admin', password: 'x' };
  const login = await client.POST('/api/auth/login', { body });
  const session: string | undefined = login.data?.data.session;
  const query = { limit: 1, active: 'true' as const };
  const { data } = await client.GET('/api/session/', { params: { query } });
  const total: number | undefined = data?._meta.pagination.total;
  const id: string | undefined = data?.data[0]?.id;
  const path = { user_id: crypto.randomUUID() };
  const unknown = await client.GET('/api/user/{user_id}', { params: { path } });
  const code: string | undefined = unknown.error?.error.code;
  // @ts-expect-error there is no such member
  await client.POST('/api/auth/login', { body: { user: 'admin', password: 'x' } });
  // @ts-expect-error it is true or false
  await client.GET('/api/session/', { params: { query: { active: 'yes' } } });
  return { session, total, id, code };
}

export async function useSecrets(client: ReturnType<typeof createClient<Secrets>>) {
  const body = { password: 'text', max_reads: 1 };
  const { data: stored } = await client.POST('/api/store/encrypt', { body });
  const { id = '', secret = '' } = stored ?? {};
  const list = await client.GET('/api/store', { params: { query: { limit: 10 } } });
  const ids: string[] | undefined = list.data?.map((one) => one.id);
  const opening = { params: { query: { id } }, body: { secret } };
  const opened = await client.POST('/api/store/decrypt', opening);
  const text: string | undefined = opened.data?.password;
  const code: string | undefined = opened.error?.error.code;
  // @ts-expect-error the id is required
  await client.POST('/api/store/decrypt', { body: { secret } });
  return { ids, text, code };
}

export async function useWebhook(client: ReturnType<typeof createClient<Webhook>>) {
  const body = { event: 'made', data: { page_id: 'one' } };
  const sent = await client.POST('/webhook', { body });
  const id: string | undefined = sent.data?.id;
  const page = await client.GET('/events', { params: { query: { event: 'made', limit: 1 } } });
  const listed = page.data?.map(({ id, status }): [string, string] => [id, status]);
  const details = await client.GET('/events/{id}', { params: { path: { id: 'one' } } });
  const name: string | undefined = details.data?.event.event;
  // @ts-expect-error there is no such status
  await client.GET('/events', { params: { query: { status: 'lost' } } });
  return { id, listed, name };
}
`;

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

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
import { installPackages, runTool } from '../tools.ts';

/** A program with a client that openapi-typescript and openapi-fetch make of the documents. */
const PROGRAM = `
import createClient from 'openapi-fetch';
import type { paths as Identity } from './identity.js';
import type { paths as Secrets } from './secrets.js';
import type { paths as Webhook } from './webhook.js';

interface Given {
  readonly url: Readonly<Record<'identity' | 'secrets' | 'webhook', string>>;
  readonly password: string;
  readonly token: Readonly<Record<'secrets' | 'sender' | 'operator', string>>;
}

const bearer = (token: string) => ({ authorization: \`Bearer \${token}\` });

function dataOf<Data>(reply: { readonly data?: Data; readonly error?: unknown }) {
  if (reply.data === undefined || reply.data === null) throw new Error(JSON.stringify(reply.error));
  return reply.data;
}

export async function useIdentity({ url, password }: Given) {
  const client = createClient<Identity>({ baseUrl: url.identity });
  const body = { username: 'admin', password };
  const session: string = dataOf(await client.POST('/api/auth/login', { body })).data.session;
  const headers = bearer(session);
  const query = { limit: 1, active: 'true' as const };
  const list = dataOf(await client.GET('/api/session/', { headers, params: { query } }));
  const total: number = list._meta.pagination.total;
  const id: string | undefined = list.data[0]?.id;
  const path = { user_id: crypto.randomUUID() };
  const unknown = await client.GET('/api/user/{user_id}', { headers, params: { path } });
  const code: string | undefined = unknown.error?.error.code;
  // @ts-expect-error there is no such member
  await client.POST('/api/auth/login', { body: { user: 'admin', password } });
  // @ts-expect-error it is true or false
  await client.GET('/api/session/', { headers, params: { query: { active: 'yes' } } });
  return { session, total, id, code };
}

export async function useSecrets({ url, token }: Given, text: string) {
  const client = createClient<Secrets>({ baseUrl: url.secrets, headers: bearer(token.secrets) });
  const stored = dataOf(
    await client.POST('/api/store/encrypt', { body: { password: text, max_reads: 1 } }),
  );
  const { id, secret } = stored;
  const list = dataOf(await client.GET('/api/store', { params: { query: { limit: 10 } } }));
  const opening = { params: { query: { id } }, body: { secret } };
  const opened = dataOf(await client.POST('/api/store/decrypt', opening));
  const again = await client.POST('/api/store/decrypt', opening);
  const code: string | undefined = again.error?.error.code;
  // @ts-expect-error the id is required
  await client.POST('/api/store/decrypt', { body: { secret } });
  return { id, listed: list.map((one) => one.id), text: opened.password, code };
}

export async function useWebhook({ url, token }: Given, event: string) {
  const client = createClient<Webhook>({ baseUrl: url.webhook });
  const sender = bearer(token.sender);
  const headers = bearer(token.operator);
  let last = '';
  for (const page_id of ['one', 'two']) {
    const body = { event, data: { page_id } };
    // The reply to a handshake of a sender has no id.
    last = dataOf(await client.POST('/webhook', { headers: sender, body })).id ?? '';
  }
  const query = { event, limit: 1 };
  const page = await client.GET('/events', { headers, params: { query } });
  const listed = dataOf(page).map(({ id, status }) => ({ id, status }));
  const link: string | null = page.response.headers.get('link');
  const path = { id: last };
  const details = dataOf(await client.GET('/events/{id}', { headers, params: { path } }));
  const name: string = details.event.event;
  // @ts-expect-error there is no such status
  await client.GET('/events', { headers, params: { query: { status: 'lost' } } });
  return { last, listed, link, name };
}
`;

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

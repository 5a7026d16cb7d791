/**
 * A program with a client that openapi-typescript and openapi-fetch make of the documents. It is
 * compiled beside these packages, which are not dependencies of Gatehouse.
 */
export const PROGRAM = `
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

/** Requests for secrets: as the pages ask and answer, and altered with the server secret. */
import assert from 'node:assert/strict';
import type { Sql } from 'postgres';
import { createServerKey } from '../../src/secrets/envelope.ts';
import { checkRequest, createRequest, sealAnswer } from '../../src/secrets/pages/request-keys.js';
import { requestTagOf, type RequestTerms } from '../../src/secrets/request-tag.ts';
import { ask, AUTH_TOKEN, SERVER_SECRET } from './gatehouse.ts';

export const TITLE = 'Password of the shop';

async function request(base: string, limits: object) {
  const { key, request: made } = await createRequest('text', TITLE);
  const body = { ...made, ...limits };
  const asked = await ask('POST', `${base}/api/store/request`, { bearer: AUTH_TOKEN, body });
  assert.equal(asked.status, 201, asked.text);
  const { id, receipt }: Readonly<Record<'id' | 'receipt', string>> = asked.json;
  return { id, receipt, key, digest: made.digest, body };
}
export type Asked = Awaited<ReturnType<typeof request>>;

/** Asks with AUTH_TOKEN; answers need none. */
export function requestsClient(base: string) {
  const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
    ask('POST', base + path, { body, headers });
  const answerBody = async ({ id, digest, body }: Asked, text: string) => {
    const keys = (await checkRequest(id, digest, body)) ?? assert.fail();
    return sealAnswer({ about: { kind: 'text' }, bytes: new TextEncoder().encode(text) }, keys);
  };
  const postAnswer = ({ id, digest }: Asked, body: unknown) =>
    post(`/answer/${id}`, body, { 'x-link-key': digest });
  return {
    post,
    request: (limits: object = {}) => request(base, limits),
    answerBody,
    postAnswer,
    answer: async (asked: Asked, text = 'x') => postAnswer(asked, await answerBody(asked, text)),
  };
}

/** Makes the tag of a request anew, so that the service takes its row for unaltered. */
export async function tagAnew(sql: Sql, id: string): Promise<void> {
  const [row] = await sql<RequestTerms[]>`
    select id, creator, asker, kind, title, public_key, digest, key_digest, max_reads,
      seconds, answer_key, expires_at
    from secrets.requests
    where id = ${id}`;
  if (!row) throw new Error(`there is no request ${id}`);
  const tag = requestTagOf(createServerKey(SERVER_SECRET), row);
  await sql`update secrets.requests set tag = ${tag} where id = ${id}`;
}

/** Lets a request expire. */
export async function expireRequest(sql: Sql, id: string): Promise<void> {
  await sql`
    update secrets.requests set expires_at = date_trunc('milliseconds', now() - interval '1 s')
    where id = ${id}`;
  await tagAnew(sql, id);
}

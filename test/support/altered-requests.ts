/** Requests as someone would alter them who has the database, and the server secret as well. */
import type { Sql } from 'postgres';
import { createServerKey } from '../../src/secrets/envelope.ts';
import { requestTagOf, type RequestTerms } from '../../src/secrets/request-tag.ts';
import { SERVER_SECRET } from './gatehouse.ts';

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

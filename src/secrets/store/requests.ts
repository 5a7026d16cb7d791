import { type Database, removeBatch, type Sql } from '../../platform/db/sql.ts';
import type { RequestState } from '../replies.ts';
import type { RequestTag, RequestTerms } from '../request-tag.ts';
import { isOwnSql, type NewSecret } from './secrets.ts';

export type SecretRequest = RequestTerms &
  RequestTag &
  Pick<RequestState, 'status' | 'kind'> &
  Readonly<{ expired: boolean }>;

export const insertRequest = (database: Database, row: RequestTerms & RequestTag) =>
  database.write((sql) => sql`insert into secrets.requests ${sql(row)}`);

export async function findRequest(database: Database, id: string) {
  const [row] = await database.read(
    (sql) => sql<SecretRequest[]>`
    select coalesce(ending, case when expires_at <= now() then 'expired' else 'open' end) as status,
      expires_at <= now() as expired, id, key_id, tag, creator, asker, kind, title, public_key,
      digest, key_digest, max_reads, seconds, answer_key, expires_at
    from secrets.requests
    where id = ${id}`,
  );
  return row ?? null;
}

export const openSql = (sql: Sql) => sql`ending is null and expires_at > now()`;

/**
 * Stores the answer if the request is open. The condition decides: of any number of simultaneous
 * answers, one succeeds.
 * @param answered the request with its answer
 * @returns whether this one did
 */
export const answerRequest = (
  database: Database,
  answer: NewSecret,
  { answer_key, expires_at, tag }: SecretRequest,
) =>
  database.transaction(async (sql) => {
    const { count } = await sql`
      update secrets.requests set ending = 'answered', answer_key = ${answer_key},
        expires_at = ${expires_at}, tag = ${tag}
      where id = ${answer.id} and ${openSql(sql)}`;
    if (count === 1) await sql`insert into secrets.secrets ${sql(answer)}`;
    return count === 1;
  });

export const withdrawnSql = (sql: Sql) => sql`ending = 'withdrawn', expires_at = now(), tag = null`;

/** @param creator as of `deleteSecret` @returns whether the request was open */
export async function withdrawRequest(database: Database, id: string, creator: string | null) {
  const { count } = await database.write(
    (sql) => sql`
    update secrets.requests set ${withdrawnSql(sql)}
    where id = ${id} and ${openSql(sql)} and ${isOwnSql(sql, creator)}`,
  );
  return count === 1;
}

/** Removes what ended, or whose answer expired, more than `seconds` ago. @returns how many */
export const removeRequests = (database: Database, seconds: number, limit: number) =>
  removeBatch(
    database,
    'secrets.requests',
    'id',
    (sql) => sql`
      select id
      from secrets.requests
      where expires_at <= now() - make_interval(secs => ${seconds})
      order by expires_at
      limit ${limit}`,
  );

import type { Database, Sql } from '../../db/pool.ts';
import { removeBatch } from '../../db/sql.ts';
import { dateTime, type Infer, nullable, object, oneOf, text } from '../../http/schema.ts';
import { count, type NewSecret } from './secrets.ts';

export const kindSchema = oneOf('text', 'file');
/** What both parties may know. */
export const requestSchema = object({
  status: oneOf('open', 'answered', 'expired', 'withdrawn'),
  kind: kindSchema,
  title: text(),
  asker: nullable(text({ description: 'The user who asks, if one has signed in' })),
  public_key: text(),
  answer_key: nullable(text({ description: 'The public key of the answer' })),
  max_bytes: count,
  expires_at: dateTime('Of the request, or of its answer'),
});
export type SecretRequest = Omit<Infer<typeof requestSchema>, 'max_bytes'> &
  Readonly<{
    digest: string; // in the link to send: the page that answers recognizes the public key by it
    key_digest: Buffer; // of the key in the link to keep
    creator: string | null;
    max_reads: number; // of the answer
    seconds: number; // how long the request is open, and how long its answer is kept
  }>;

export const insertRequest = (
  database: Database,
  row: Omit<SecretRequest, 'status' | 'asker' | 'answer_key'> & Readonly<{ id: string }>,
) => database.write((sql) => sql`insert into secrets.requests ${sql(row)}`);

export async function findRequest(database: Database, id: string) {
  const [row] = await database.read(
    (sql) => sql<SecretRequest[]>`
    select coalesce(ending, case when expires_at <= now() then 'expired' else 'open' end) as status,
      kind, title, substring(creator from '^user:(.*)') as asker, public_key, answer_key,
      expires_at, digest, key_digest, creator, max_reads, seconds
    from secrets.requests
    where id = ${id}`,
  );
  return row ?? null;
}

export const openSql = (sql: Sql) => sql`ending is null and expires_at > now()`;

/**
 * Stores the answer if the request is open. The condition decides: of any number of simultaneous
 * answers, one succeeds.
 * @returns whether this one did
 */
export const answerRequest = (database: Database, answer: NewSecret, publicKey: string) =>
  database.transaction(async (sql) => {
    const { count } = await sql`
      update secrets.requests set ending = 'answered', answer_key = ${publicKey},
        expires_at = ${answer.expires_at}
      where id = ${answer.id} and ${openSql(sql)}`;
    if (count === 1) await sql`insert into secrets.secrets ${sql(answer)}`;
    return count === 1;
  });

/** @param creator as of `deleteSecret` @returns whether the request was open */
export async function withdrawRequest(database: Database, id: string, creator: string | null) {
  const { count } = await database.write(
    (sql) => sql`
    update secrets.requests set ending = 'withdrawn', expires_at = now()
    where id = ${id} and ${openSql(sql)} and (${creator}::text is null or creator = ${creator})`,
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

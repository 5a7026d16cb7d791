import { hexArrayLiteral, batched } from '../../db/batch.ts';
import type { Database, Sql } from '../../db/pool.ts';
import type { SealedSecret } from '../signing.ts';
import type { SourceName } from '../sources.ts';

export type Role = 'sender' | 'operator';

export interface Token {
  readonly id: string;
  readonly name: string;
  readonly role: Role;
  readonly source: SourceName;
  readonly created_at: Date;
  readonly last_used_at: Date | null;
  readonly revoked_at: Date | null;
}

/** Who presents a token, and what its requests are to be signed with. */
export interface Sender {
  readonly id: string;
  readonly role: Role;
  readonly source: SourceName;
  readonly secrets: readonly SealedSecret[];
  /** Not noted as used for a while. */
  readonly last_seen_is_old: boolean;
}

/** How exactly the last use of a token is known. */
const STALE_SECONDS = 60;

/** @returns whose live token has this digest, or null; a rotated one holds until its overlap ends */
export const findSender = batched(
  async (database: Database, presented: readonly Buffer[]): Promise<Array<Sender | null>> => {
    const digests = presented.map((digest) => digest.toString('hex'));
    const wanted = hexArrayLiteral([...new Set(digests)]);
    const rows = await database.read(
      (sql) => sql<Array<Omit<Sender, 'secrets'> & { current: string; previous: string | null; secret: SealedSecret['id'] | null } & Omit<SealedSecret, 'id'>>>`
        select encode(t.digest, 'hex') as current, case when t.previous_until > now() then encode(t.previous_digest, 'hex') end as previous,
          t.id, t.role, t.source, coalesce(t.last_used_at < now() - make_interval(secs => ${STALE_SECONDS}), true) as last_seen_is_old,
          s.id as secret, s.key_id, s.client_key, s.commitment, s.blob
        from webhook.tokens t
        left join webhook.signing_secrets s on s.token_id = t.id and not s.pending and (s.expires_at is null or s.expires_at > now())
        where (t.digest = any (${wanted}::text::bytea[]) or t.previous_digest = any (${wanted}::text::bytea[])) and t.revoked_at is null`,
    );
    const senders = new Map<string | null, Sender>();
    for (const { current, previous, id, role, source, last_seen_is_old, secret, key_id, client_key, commitment, blob } of rows) {
      const secrets = secret === null ? [] : [{ id: secret, key_id, client_key, commitment, blob }];
      const sender = { id, role, source, last_seen_is_old, secrets: [...(senders.get(current)?.secrets ?? []), ...secrets] };
      senders.set(current, sender).set(previous, sender);
    }
    return digests.map((digest) => senders.get(digest) ?? null);
  },
);

/** Notes that tokens were used. */
export async function noteUse(database: Database, ids: readonly string[]): Promise<void> {
  await database.write((sql) => sql`update webhook.tokens set last_used_at = now() where id in ${sql(ids)}`);
}

export interface NewToken {
  readonly id: string;
  readonly name: string;
  readonly role: Role;
  readonly source: SourceName;
  readonly digest: Buffer;
}

const columns = (sql: Sql) => sql`id, name, role, source, created_at, last_used_at, revoked_at`;

export async function insertToken(sql: Sql, { id, name, role, source, digest }: NewToken): Promise<Token> {
  const [token] = await sql<[Token]>`
    insert into webhook.tokens (id, name, role, source, digest) values (${id}, ${name}, ${role}, ${source}, ${digest})
    returning ${columns(sql)}`;
  return token;
}

export async function anyTokenExists(sql: Sql): Promise<boolean> {
  const [row] = await sql<[{ found: boolean }]>`select exists (select 1 from webhook.tokens) as found`;
  return row.found;
}

/** Locked, so that two who rotate at once come one after the other. @returns null when there is no live token with this id */
export async function lockToken(sql: Sql, id: string): Promise<Token | null> {
  const [token] = await sql<Token[]>`select ${columns(sql)} from webhook.tokens where id = ${id} and revoked_at is null for update`;
  return token ?? null;
}

/** Oldest first, the revoked included, and which of them wait for a confirmation. */
export async function listTokens(database: Database): Promise<Array<Token & { pending: boolean }>> {
  return database.list(
    (sql) => sql<Array<Token & { pending: boolean }>>`
      select ${columns(sql)}, exists (select from webhook.signing_secrets s where s.token_id = t.id and s.pending) as pending
      from webhook.tokens t order by created_at, id`,
  );
}

/** @returns false when there is no such token; revoking twice is not an error and keeps the first time */
export async function revokeToken(database: Database, id: string): Promise<boolean> {
  const result = await database.write((sql) => sql`update webhook.tokens set revoked_at = coalesce(revoked_at, now()) where id = ${id}`);
  return result.count === 1;
}

/** The token of before holds for so many seconds more. */
export async function replaceDigest(sql: Sql, id: string, digest: Buffer, overlap: number): Promise<void> {
  await sql`
    update webhook.tokens set previous_digest = digest, previous_until = now() + make_interval(secs => ${overlap}), digest = ${digest} where id = ${id}`;
}

/** The signing secrets of before hold for so many seconds more; those that were to end sooner still do. */
export async function insertSecret(sql: Sql, tokenId: string, { id, key_id, client_key, commitment, blob }: SealedSecret, overlap: number): Promise<void> {
  await sql`delete from webhook.signing_secrets where token_id = ${tokenId} and expires_at <= now()`;
  await sql`
    update webhook.signing_secrets set expires_at = least(expires_at, now() + make_interval(secs => ${overlap})) where token_id = ${tokenId} and not pending`;
  await sql`
    insert into webhook.signing_secrets (id, token_id, key_id, client_key, commitment, blob)
    values (${id}, ${tokenId}, ${key_id}, ${client_key}, ${commitment}, ${blob})`;
}

/** What a sender hands over itself. It takes the place of an earlier one that nobody has confirmed, and of nothing else. */
export async function insertPending(database: Database, tokenId: string, { id, key_id, client_key, commitment, blob }: SealedSecret): Promise<void> {
  await database.write(
    (sql) => sql`
      insert into webhook.signing_secrets (id, token_id, key_id, client_key, commitment, blob, pending)
      values (${id}, ${tokenId}, ${key_id}, ${client_key}, ${commitment}, ${blob}, true)
      on conflict (token_id) where pending do update set
        id = excluded.id, key_id = excluded.key_id, client_key = excluded.client_key, commitment = excluded.commitment, blob = excluded.blob, created_at = now()`,
  );
}

export async function findPending(sql: Sql, tokenId: string): Promise<SealedSecret | null> {
  const [secret] = await sql<SealedSecret[]>`select id, key_id, client_key, commitment, blob from webhook.signing_secrets where token_id = ${tokenId} and pending`;
  return secret ?? null;
}

export async function removePending(sql: Sql, tokenId: string): Promise<void> {
  await sql`delete from webhook.signing_secrets where token_id = ${tokenId} and pending`;
}

/** By which WEBHOOK_SECRET the live signing secrets are sealed: so many under each key id. */
export async function countByKey(database: Database): Promise<Array<{ key_id: string; secrets: number }>> {
  return database.list((sql) => sql<Array<{ key_id: string; secrets: number }>>`
    select s.key_id, count(*)::int as secrets from webhook.signing_secrets s join webhook.tokens t on t.id = s.token_id
    where t.revoked_at is null and (s.expires_at is null or s.expires_at > now()) group by s.key_id`);
}

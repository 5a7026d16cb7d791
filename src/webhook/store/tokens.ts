import type { SealedSecret } from '../../crypto/service-secret.ts';
import { sharedStatement } from '../../db/share-statement.ts';
import { arrayLiteral } from '../../db/sql.ts';
import type { Database, Sql } from '../../db/pool.ts';
import type { OwnTarget } from '../settings.ts';
import type { CustomSource, SourceName } from '../sources.ts';

export type Role = 'sender' | 'operator';

/** `pending`: whether a signing secret waits for its confirmation. */
export type Token = Readonly<{
  id: string;
  name: string;
  role: Role;
  source: SourceName;
  custom: CustomSource | null;
  pending: boolean;
  created_at: Date;
  last_used_at: Date | null;
  revoked_at: Date | null;
  target: OwnTarget | null;
  keep_signature: boolean;
  refused: number; // requests in the last 24 hours
  last_refusal: string | null; // an error code, of the last seven days
  last_refused_at: Date | null;
}>;

/** The caller that a token authenticates. */
export interface TokenCaller extends Pick<
  Token,
  'id' | 'role' | 'source' | 'custom' | 'target' | 'keep_signature'
> {
  readonly secrets: readonly SealedSecret[]; // the active signing secrets: two during a rotation
  readonly is_active: boolean; // false after a revocation, and after the overlap of a rotation
  readonly last_seen_is_old: boolean; // the last use is recorded at most once a minute
  readonly revision: number;
}

/**
 * `isKept`: looked up some seconds ago, so only a statement that checks the token may accept
 * anything.
 */
export type KnownToken = TokenCaller & Readonly<{ digest: Buffer; isKept: boolean }>;

/** @returns the caller of the token with this digest, active or not */
export const findTokenCaller = sharedStatement(
  async (database: Database, presented: readonly Buffer[]) => {
    const digests = presented.map((digest) => digest.toString('hex'));
    const wanted = arrayLiteral(presented);
    const rows = await database.read(
      (sql) => sql<CallerRow[]>`
      select encode(digest, 'hex') as current, encode(previous_digest, 'hex') as previous,
        t.id as token_id, role, source, custom, target, keep_signature, revision,
        revoked_at is null as is_active,
        coalesce(previous_until > now(), false) as overlaps,
        coalesce(last_used_at < now() - interval '1 minute', true) as last_seen_is_old,
        s.id, key_id, client_key, commitment, blob
      from webhook.tokens t left join webhook.signing_secrets s
        on token_id = t.id and not pending and not for_target
          and (expires_at is null or expires_at > now())
      where digest = any (${wanted}::text::bytea[])
        or previous_digest = any (${wanted}::text::bytea[])`,
    );
    const callers = new Map<string | null, TokenCaller>();
    for (const row of rows) {
      const { current, previous, token_id, overlaps, ...others } = row;
      const { id, key_id, client_key, commitment, blob, ...token } = others;
      const known = callers.get(current)?.secrets ?? [];
      const isSealed = id !== null;
      const sealed = isSealed ? [{ id, key_id, client_key, commitment, blob }] : [];
      const caller = { ...token, id: token_id, secrets: [...known, ...sealed] };
      const isActive = token.is_active && overlaps;
      callers.set(current, caller).set(previous, { ...caller, is_active: isActive });
    }
    return digests.map((digest) => callers.get(digest) ?? null);
  },
);

/** A token with one of its signing secrets. Without one, the members of the secret are null. */
type CallerRow = Omit<TokenCaller, 'id' | 'secrets'> &
  (SealedSecret | Record<keyof SealedSecret, null>) & {
    current: string;
    previous: string | null;
    token_id: string;
    overlaps: boolean;
  };

/** Oldest first, revoked tokens included. */
export const listTokens = (database: Database) =>
  database.list(
    (sql) => sql<Token[]>`
    select id, name, role, source, custom, target, keep_signature, created_at, last_used_at,
      revoked_at,
      (select coalesce(sum(count), 0)::float8 from webhook.refusals r
        where r.token_id = t.id and r.hour > now() - interval '24 hours') as refused,
      last.reason as last_refusal, last.last_at as last_refused_at,
      exists (select from webhook.signing_secrets s
        where s.token_id = t.id and s.pending) as pending
    from webhook.tokens t left join lateral (
      select reason, last_at from webhook.refusals r where r.token_id = t.id
      order by last_at desc limit 1) last on true
    order by created_at, id`,
  );

export const markTokensUsed = (database: Database, ids: readonly string[]) =>
  database.write(
    (sql) => sql`
  update webhook.tokens set last_used_at = now()
  where id = any (${arrayLiteral(ids)}::text::uuid[])`,
  );

export const anyTokenExists = async (sql: Sql) =>
  (await sql`select from webhook.tokens limit 1`).length === 1;

/** Until the end of the transaction, no other replica can store a token. */
export const lockTable = (sql: Sql) => sql`lock table webhook.tokens in share row exclusive mode`;

/**
 * Stores a secret that a sender sent itself. It replaces an earlier pending one, and never an
 * active one.
 */
export const insertPending = (database: Database, tokenId: string, sealed: SealedSecret) =>
  database.write(
    (sql) => sql`
    insert into webhook.signing_secrets ${sql({ ...sealed, token_id: tokenId, pending: true })}
    on conflict (token_id) where pending do update set id = excluded.id, key_id = excluded.key_id,
      client_key = excluded.client_key, commitment = excluded.commitment, blob = excluded.blob,
      created_at = now()`,
  );

/** How many active signing secrets are sealed under each WEBHOOK_SECRET, by its key id. */
export const countByKey = (database: Database) =>
  database.list(
    (sql) => sql<Array<{ key_id: string; secrets: number }>>`
    select key_id, count(*)::int4 as secrets
    from webhook.signing_secrets join webhook.tokens t on t.id = token_id
    where revoked_at is null and (expires_at is null or expires_at > now())
    group by key_id`,
  );

import type { SealedSecret } from '../../platform/crypto/service-secret.ts';
import { sharedStatement } from '../../platform/db/share-statement.ts';
import { arrayLiteral, type Database, type Sql } from '../../platform/db/sql.ts';
import type { Target } from '../model.ts';
import type { CustomSource, SourceName } from '../sources.ts';
import { HANDSHAKE } from './unstored.ts';

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
  target: Target | null;
  keep_signature: boolean;
  order_by: string | null; // null: as WEBHOOK_ORDER says
  refused: number; // requests in the last 24 hours
  // Of the last seven days: an error code, what the client was told, its address.
  last_refusal: string | null;
  last_refusal_detail: string | null;
  last_refused_from: string | null;
  last_refused_at: Date | null;
  last_handshake: string | null; // its kind
  last_handshake_at: Date | null;
}>;

/** The caller that a token authenticates. */
export interface TokenCaller extends Pick<
  Token,
  'id' | 'role' | 'source' | 'custom' | 'target' | 'keep_signature' | 'order_by'
> {
  readonly secrets: readonly SealedSecret[]; // the active signing secrets: two during a rotation
  readonly is_active: boolean; // false after a revocation, and after the overlap of a rotation
  readonly last_seen_is_old: boolean; // the last use is recorded at most once a minute
  readonly revision: number;
}

/** @returns the caller of the token with this digest, active or not */
export const findTokenCaller = sharedStatement(
  'read',
  async (sql, presented: readonly Buffer[]) => {
    const rows = await sql<CallerRow[]>`
      select encode(sent, 'hex') as sent, t.id as token_id, role, source, custom, target,
        keep_signature, order_by, revision,
        revoked_at is null
          and (digest = sent or coalesce(previous_until > now(), false)) as is_active,
        coalesce(last_used_at < now() - interval '1 minute', true) as last_seen_is_old,
        s.id, key_id, client_key, commitment, blob
      from (select distinct unnest(${arrayLiteral(presented)}::text::bytea[]) as sent) given
      join webhook.tokens t on digest = sent or previous_digest = sent
      left join webhook.signing_secrets s on token_id = t.id
        and purpose = 'verify'
        and (expires_at is null or expires_at > now())`;
    const callers = new Map<string, TokenCaller>();
    for (const { sent, token_id, id, key_id, client_key, commitment, blob, ...token } of rows) {
      const known = callers.get(sent)?.secrets ?? [];
      const secrets =
        id === null ? known : [...known, { id, key_id, client_key, commitment, blob }];
      callers.set(sent, { ...token, id: token_id, secrets });
    }
    return presented.map((digest) => callers.get(digest.toString('hex')) ?? null);
  },
  // The events of a sender keep their order.
  { keyOf: (digest) => digest.toString('hex') },
);

/** A token with one of its signing secrets. Without one, the members of the secret are null. */
type CallerRow = Omit<TokenCaller, 'id' | 'secrets'> &
  (SealedSecret | Record<keyof SealedSecret, null>) &
  Readonly<{ sent: string; token_id: string }>;

/** Oldest first, revoked tokens included. */
export const listTokens = (database: Database) =>
  database.list(
    (sql) => sql<Token[]>`
    select id, name, role, source, custom, target, keep_signature, order_by, created_at,
      last_used_at, revoked_at,
      (select coalesce(sum(count), 0)::float8 from webhook.unstored
        where token_id = t.id and hour > now() - interval '24 hours'
          and reason <> ${HANDSHAKE}) as refused,
      last_refusal, last_refusal_detail, last_refused_from, last_refused_at, last_handshake,
      last_handshake_at,
      exists (select from webhook.signing_secrets
        where token_id = t.id and purpose = 'pending') as pending
    from webhook.tokens t
    left join lateral (
      select reason as last_refusal, detail as last_refusal_detail,
        address as last_refused_from, last_at as last_refused_at
      from webhook.unstored
      where token_id = t.id and reason <> ${HANDSHAKE}
      order by last_at desc
      limit 1) refusal on true
    left join lateral (
      select detail as last_handshake, last_at as last_handshake_at
      from webhook.unstored
      where token_id = t.id and reason = ${HANDSHAKE}
      order by last_at desc
      limit 1) handshake on true
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

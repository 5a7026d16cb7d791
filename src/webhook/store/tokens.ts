import type { SealedSecret } from '../../platform/crypto/service-secret.ts';
import { sharedStatement } from '../../platform/db/share-statement.ts';
import {
  alignToKeys,
  arrayLiteral,
  type Database,
  hexBytes,
  type Sql,
} from '../../platform/db/sql.ts';
import type { NewToken } from '../../platform/db/tokens.ts';
import { COMMON_QUEUE } from '../migrations.ts';
import type { Command, Target, TargetOptions } from '../model.ts';
import type { CustomSource, SourceName } from '../sources.ts';
import { insertSql } from './signing-secrets.ts';
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
  readonly digest: Buffer; // of the token that was presented
  readonly secrets: readonly SealedSecret[]; // that verify its requests: two during a rotation
  readonly is_active: boolean; // false after a revocation, and after the overlap of a rotation
  readonly last_seen_is_old: boolean; // the last use is recorded at most once a minute
  readonly revision: number;
}

/** @returns the caller of the token with this digest, active or not */
export const findTokenCaller = sharedStatement(
  'read',
  async (sql, presented: readonly Buffer[]) => {
    const callers = await sql<Array<Omit<TokenCaller, 'secrets'>>>`
      select sent as digest, id, role, source, custom, target, keep_signature, order_by, revision,
        revoked_at is null
          and (digest = sent or coalesce(previous_until > now(), false)) as is_active,
        coalesce(last_used_at < now() - interval '1 minute', true) as last_seen_is_old
      from (select distinct unnest(${arrayLiteral(presented)}::text::bytea[]) as sent) given
      join webhook.tokens on digest = sent or previous_digest = sent`;
    const ids = arrayLiteral(callers.map(({ id }) => id));
    const secrets = await sql<Array<SealedSecret & { token_id: string }>>`
      select id, key_id, client_key, commitment, blob, token_id
      from webhook.signing_secrets
      where token_id = any (${ids}::text::uuid[])
        and purpose = 'verify'
        and (expires_at is null or expires_at > now())`;
    const found = callers.map((caller) => ({
      ...caller,
      secrets: secrets.filter(({ token_id }) => token_id === caller.id),
    }));
    return alignToKeys(presented.map(hexBytes), found, ({ digest }) => hexBytes(digest));
  },
  // The events of a sender keep their order.
  { keyOf: hexBytes },
);

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

/** @param secret its signing secret, or null */
export const insertToken = (
  database: Database,
  { custom, ...token }: NewToken & Pick<Token, 'source' | 'custom' | 'order_by'>,
  secret: SealedSecret | null,
) =>
  database.transaction(async (sql) => {
    await sql`insert into webhook.tokens ${sql({ ...token, custom: custom && sql.json(custom) })}`;
    if (secret) await insertSql(sql, secret, token.id, 'verify');
  });

/**
 * What is undefined stays as it is. Nothing more is stored by an earlier order.
 * @returns whether there is an active token of a sender with this id
 */
export async function changeSender(
  database: Database,
  id: string,
  { name, order_by }: Readonly<{ name?: string | undefined; order_by?: string | null | undefined }>,
) {
  const isReordered = order_by !== undefined;
  const { count } = await database.write(
    (sql) => sql`
    update webhook.tokens set name = coalesce(${name ?? null}, name),
      order_by = case when ${isReordered} then ${order_by ?? null} else order_by end,
      revision = revision + ${Number(isReordered)}
    where id = ${id} and role = 'sender' and revoked_at is null`,
  );
  return count === 1;
}

/**
 * Revokes the tokens, which may have been revoked or replaced since a backup.
 * @returns how many of each role
 */
export function revokeRestored(sql: Sql, withSenders: boolean) {
  return sql<Array<{ role: string; revoked: number }>>`
    with revoked as (
      update webhook.tokens set revoked_at = now()
      where revoked_at is null and (role <> 'sender' or ${withSenders})
      returning role)
    select role, count(*)::int4 as revoked
    from revoked
    group by role
    order by role`;
}

/** What is undefined stays as it is. */
export type TargetChange = Readonly<{
  /** A URL or a program replaces the one before. Null: the target of the process. */
  target: (TargetOptions & { url?: string | undefined; command?: Command | undefined }) | null;
  keep_signature: boolean | undefined;
  secret: SealedSecret | null | undefined; // signs the requests; null for none
}>;

/** Back to the target of the process. */
export const NO_TARGET_OF_ITS_OWN: TargetChange = {
  target: null,
  keep_signature: false,
  secret: null,
};

/**
 * Changes the target of a sender's token and of its waiting events. Events being stored are waited
 * for, and others wait for this: each is in the queue of its target.
 * @returns whether there is an active token of a sender with this id, and a place for its events
 */
export const setTarget = (
  database: Database,
  id: string,
  { target, keep_signature, secret }: TargetChange,
) =>
  database.transaction(async (sql) => {
    await sql`lock table webhook.work in share row exclusive mode`;
    // An `emit` that began before notices the change by this lock, which is the strongest.
    await sql`select from webhook.tokens where id = ${id} for update`;
    const hasPlace = target?.url !== undefined || target?.command !== undefined;
    const [token] = await sql<Array<{ queue: string }>>`
      update webhook.tokens set revision = revision + 1,
        keep_signature = coalesce(${keep_signature ?? null}, keep_signature),
        target = case when ${hasPlace} then coalesce(target, '{}') - '{url,command}'::text[]
          else target end || ${target && JSON.stringify(target)}::text::jsonb
      where id = ${id} and role = 'sender' and revoked_at is null
        and (target is not null or ${hasPlace || target === null})
      returning case when target is null then ${COMMON_QUEUE} else id end as queue`;
    if (!token) return false;
    const { queue } = token;
    if (secret !== undefined)
      await sql`delete from webhook.signing_secrets where token_id = ${id} and purpose = 'sign'`;
    if (secret) await insertSql(sql, secret, id, 'sign');
    for (const table of ['work', 'pages']) {
      await sql`
        update webhook.${sql(table)} set queue = ${queue}
        where token_id = ${id} and queue <> ${queue}`;
    }
    return true;
  });

/** The tokens with a target of their own, revoked ones included: their events still wait. */
export const listTargets = (database: Database) =>
  database.read(
    (sql) => sql<Array<{ id: string; revision: number; target: Target }>>`
    select id, revision, target
    from webhook.tokens
    where target is not null
    order by id`,
  );

import { randomUUID } from 'node:crypto';
import type { Database, Fragment, Sql } from '../../platform/db/pool.ts';
import type { RequestInfo } from '../../platform/http/route/route.ts';
import type { AuditRecord } from '../model.ts';
import type { Caller } from '../policy.ts';

export const EVENTS = [
  'login.succeeded',
  'login.failed',
  'login.pending',
  'login.throttled',
  'session.logged_out',
  'session.revoked',
  'password.changed',
  'password.failed',
  'password.set',
  'user.created',
  'user.changed',
  'user.deleted',
  'user.secured',
  'key.created',
  'key.revoked',
  'link.created',
  'link.used',
  'link.late',
  'link.revoked',
  'factor.added',
  'factor.removed',
  'factor.failed',
  'recovery.used',
  'login.unlocked',
  'client.created',
  'client.changed',
  'client.deleted',
  'grant.created',
  'grant.ended',
  'grant.replayed',
  'signing_key.created',
] as const;
export type AuditEvent = (typeof EVENTS)[number];

/** Who acts, and from where. `caller`: as the guard found it; null where no rights are needed. */
export type Actor = Readonly<{
  via: AuditRecord['via'];
  userId: string | null;
  ip: string | null;
  requestId: string | null;
  caller: Caller | null;
}>;

/** @param caller null for a request without a credential */
export function actorOf(caller: Caller | null, { address: ip, requestId }: RequestInfo): Actor {
  const unlessKey = caller?.session ? 'session' : 'nobody';
  const via = caller?.key ? 'key' : unlessKey;
  return {
    via,
    caller,
    userId: caller?.user?.id ?? null,
    ip,
    requestId,
  };
}

/** The user who answers for what an actor makes: of a key without a user, its creator. */
export const creatorOf = ({ userId, caller }: Actor) => userId ?? caller?.key?.created_by ?? null;

/** Anyone who can run the command line. */
export const COMMAND_LINE: Actor = {
  via: 'command',
  userId: null,
  ip: null,
  requestId: null,
  caller: null,
};

/** `detail`: the program's own text, never a secret or a caller's text. */
export type AuditEntry = Readonly<{ event: AuditEvent; actor: Actor; detail?: string }>;

const insertInto = (sql: Sql, { event, actor, detail = '' }: AuditEntry, subject: Fragment) => sql`
  insert into identity.audit (id, event, via, actor_id, key_id, ip, request_id, detail, user_id,
    target_id, count)
  select ${randomUUID()}, ${event}, ${actor.via}, ${actor.userId}, ${actor.caller?.key?.id ?? null},
    ${actor.ip}, ${actor.requestId}, ${detail}, ${subject}`;

/** The user if the rows name only one, the id if there is one row, and how many there are. */
export const summarySql = (sql: Sql) => sql`
  case when count(distinct user_id) = 1 then (array_agg(user_id))[1] end as user_id,
  case when count(*) = 1 then (array_agg(id))[1] end as target_id, count(*)::int4 as count`;

/**
 * A change, and a row in the trail if it changes any row.
 * @param change returns at least `id` and `user_id` of each
 */
export async function audited<T extends object>(sql: Sql, entry: AuditEntry, change: Fragment) {
  const subject = sql`${summarySql(sql)} from change having count(*) > 0`;
  return sql<T[]>`
    with change as (${change}), noted as (${insertInto(sql, entry, subject)}) select * from change`;
}

/** @param userId whom it is about  @param targetId what changed, if it is not the user */
export const insertAudit = (
  sql: Sql,
  entry: AuditEntry,
  userId: string | null,
  count = 1,
  targetId = userId,
) => insertInto(sql, entry, sql`${userId}, ${targetId}, ${count}`);

/** An event without a change. */
export const auditEvent = (database: Database, entry: AuditEntry, userId: string) =>
  database.write((sql) => insertAudit(sql, entry, userId));

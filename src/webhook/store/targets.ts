import type { SealedSecret } from '../../platform/crypto/service-secret.ts';
import type { Database } from '../../platform/db/pool.ts';
import { COMMON_QUEUE } from '../migrations.ts';
import { type Target, targetOf, type TargetPlace } from '../model.ts';
import { insertSql } from './signing-secrets.ts';

/** What is undefined stays as it is. `secret` signs the requests; null for none. */
export type TargetChange = Readonly<{
  place: TargetPlace | undefined;
  events: readonly string[] | null | undefined;
  timeout_seconds: number | null | undefined;
  keepSignature: boolean | undefined;
  secret: SealedSecret | null | undefined;
}>;

/**
 * Changes the target of a sender's token and of its waiting events. Events being stored are waited
 * for, and others wait for this: each is in the queue of its target.
 * @param change null for the target of the process
 * @returns whether there is an active token of a sender with this id, and a place for its events
 */
export const setTarget = (database: Database, id: string, change: TargetChange | null) =>
  database.transaction(async (sql) => {
    // Of two changes, the second one sees what the first one has stored.
    await sql`lock table webhook.work in share row exclusive mode`;
    const [before] = await sql<Array<{ target: Target | null; keep_signature: boolean }>>`
      select target, keep_signature
      from webhook.tokens
      where id = ${id} and role = 'sender' and revoked_at is null
      for update`;
    if (!before) return 'unknown';
    const target = change && targetOf(before.target, change);
    if (target === undefined) return 'no place';
    const keepSignature = change !== null && (change.keepSignature ?? before.keep_signature);
    await sql`
      update webhook.tokens set revision = revision + 1, keep_signature = ${keepSignature},
        target = ${target && sql.json(target)}
      where id = ${id}`;
    const { secret = null } = change ?? {};
    if (change?.secret !== undefined || target === null)
      await sql`delete from webhook.signing_secrets where token_id = ${id} and purpose = 'sign'`;
    if (secret) await insertSql(sql, secret, id, 'sign');
    const queue = target === null ? COMMON_QUEUE : id;
    await sql`
      update webhook.work set queue = ${queue}
      where token_id = ${id} and queue <> ${queue}`;
    await sql`
      update webhook.pages set queue = ${queue}
      where token_id = ${id} and queue <> ${queue}`;
    return 'set';
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

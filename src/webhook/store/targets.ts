import type { SealedSecret } from '../../platform/crypto/service-secret.ts';
import type { Database } from '../../platform/db/pool.ts';
import { COMMON_QUEUE } from '../migrations.ts';
import type { Target } from '../model.ts';
import { insertSql } from './signing-secrets.ts';

/**
 * Sets the target of a sender's token and of its waiting events. Events being stored are waited
 * for, and others wait for this: each is in the queue of its target.
 * @param given null for the target of the process; `secret` signs the requests, null for none
 * @returns whether there is an active token of a sender with this id
 */
export const setTarget = (
  database: Database,
  id: string,
  given: Readonly<{ target: Target; keepSignature: boolean; secret: SealedSecret | null }> | null,
) =>
  database.transaction(async (sql) => {
    const { target = null, keepSignature = false, secret = null } = given ?? {};
    await sql`lock table webhook.work in share row exclusive mode`;
    const { count } = await sql`
      update webhook.tokens set revision = revision + 1, keep_signature = ${keepSignature},
        target = ${target && sql.json(target)}
      where id = ${id} and role = 'sender' and revoked_at is null`;
    if (count === 0) return false;
    await sql`delete from webhook.signing_secrets where token_id = ${id} and purpose = 'sign'`;
    if (secret) await insertSql(sql, secret, id, 'sign');
    const queue = target === null ? COMMON_QUEUE : id;
    await sql`
      update webhook.work set queue = ${queue}
      where token_id = ${id} and queue <> ${queue}`;
    await sql`
      update webhook.pages set queue = ${queue}
      where token_id = ${id} and queue <> ${queue}`;
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

import type { SealedSecret } from '../../platform/crypto/service-secret.ts';
import type { Database } from '../../platform/db/pool.ts';
import { COMMON_QUEUE } from '../migrations.ts';
import type { OwnTarget } from '../settings.ts';
import { insertSql } from './signing-secrets.ts';

/** `target`: null for that of the process. `secret`: signs the requests to it; null for none. */
export type TokenTarget = Readonly<{
  target: OwnTarget | null;
  keepSignature: boolean;
  secret: SealedSecret | null;
}>;
export const NO_OWN_TARGET: TokenTarget = { target: null, keepSignature: false, secret: null };

/**
 * Sets the target of a sender's token and of its waiting events. Events being stored are waited
 * for, and others wait for this: each is in the queue of its target.
 * @returns whether there is an active token of a sender with this id
 */
export const setTarget = (
  database: Database,
  id: string,
  { target, keepSignature, secret }: TokenTarget,
) =>
  database.transaction(async (sql) => {
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
    (sql) => sql<Array<{ id: string; revision: number; target: OwnTarget }>>`
    select id, revision, target
    from webhook.tokens
    where target is not null
    order by id`,
  );

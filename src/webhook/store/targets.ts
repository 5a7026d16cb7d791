import type { SealedSecret } from '../../crypto/service-secret.ts';
import type { Database } from '../../db/pool.ts';
import { COMMON_QUEUE } from '../migrations.ts';
import type { OwnTarget } from '../settings.ts';

/**
 * Sets the target of a sender's token, also for its waiting events. Events being stored are waited
 * for, and others wait for this: each is in the queue of its target.
 * @param target null for the target of the process
 * @param secret signs the requests to the target; null for none
 * @returns whether there is an active token of a sender with this id
 */
export const setTarget = (
  database: Database,
  id: string,
  target: OwnTarget | null,
  keepSignature: boolean,
  secret: SealedSecret | null,
): Promise<boolean> =>
  database.transaction(async (sql) => {
    await sql`lock table webhook.work in share row exclusive mode`;
    const { count } = await sql`
      update webhook.tokens set revision = revision + 1, keep_signature = ${keepSignature},
        target = ${target === null ? null : JSON.stringify(target)}::text::jsonb
      where id = ${id} and role = 'sender' and revoked_at is null`;
    if (count === 0) return false;
    await sql`delete from webhook.signing_secrets where token_id = ${id} and for_target`;
    if (secret) {
      const row = { ...secret, token_id: id, for_target: true };
      await sql`insert into webhook.signing_secrets ${sql(row)}`;
    }
    const queue = target === null ? COMMON_QUEUE : id;
    await sql`
      with moved as (
        update webhook.work w set queue = ${queue}
        from webhook.events e where e.id = w.event_id and e.token_id = ${id} and w.queue <> ${queue}
        returning order_key
      )
      update webhook.pages set queue = ${queue} where order_key in (select order_key from moved)`;
    return true;
  });

/** The tokens with a target of their own, revoked ones included: their events still wait. */
export const listTargets = (database: Database) =>
  database.read(
    (sql) => sql<Array<{ id: string; name: string; revision: number; target: OwnTarget }>>`
    select id, name, revision, target from webhook.tokens where target is not null order by id`,
  );

/** The secret that signs the requests to a target. */
export async function findTargetSecret(database: Database, tokenId: string) {
  const [secret] = await database.read(
    (sql) => sql<SealedSecret[]>`
    select id, key_id, client_key, commitment, blob from webhook.signing_secrets
    where token_id = ${tokenId} and for_target`,
  );
  return secret ?? null;
}

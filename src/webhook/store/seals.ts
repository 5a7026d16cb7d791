import type { SealedSecret } from '../../crypto/sealed.ts';
import type { Database } from '../../db/pool.ts';

/**
 * Replaces what is not sealed under the key with this id, in one transaction.
 * @param reseal returns null for a secret that it cannot open, which is kept
 */
export function resealSecrets(
  database: Database, keyId: string, reseal: (sealed: SealedSecret) => SealedSecret | null,
): Promise<{ replaced: number; kept: number }> {
  return database.transaction(async (sql) => {
    const old = await sql<SealedSecret[]>`
      select id, key_id, client_key, commitment, blob from webhook.signing_secrets
      where key_id <> ${keyId} order by id for update`;
    let replaced = 0;
    for (const sealed of old) {
      const resealed = reseal(sealed);
      if (resealed === null) continue;
      await sql`update webhook.signing_secrets set ${sql({ ...resealed })} where id = ${sealed.id}`;
      replaced += 1;
    }
    return { replaced, kept: old.length - replaced };
  });
}

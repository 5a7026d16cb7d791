import type { Database } from '../../platform/db/pool.ts';
import type { Invitation } from '../users.ts';
import { type Actor, insertAudit } from './audit.ts';
import { changing } from './rights.ts';
import { revokeKeysOf, revokeKeysWithoutUser } from './keys.ts';
import { endAccess, eraseFactors, writeUser } from './users.ts';

/** For the audit trail. */
const REASON = 'account secured';

/**
 * Takes away everything with which an account that may have been stolen can be used, its password
 * and its open link included. The administrator who does this remains: nobody does it to
 * themselves, and of two who do it to each other, the second has lost the session.
 * @param insertLink is committed together with that
 */
export const secureUser = (
  database: Database,
  actor: Actor,
  id: string,
  insertLink?: Invitation['insert'],
) =>
  changing(database, actor, id, async (sql) => {
    const sessions = await endAccess(sql, actor, id, REASON);
    const own = await revokeKeysOf(sql, actor, id, REASON);
    const keys = own + (await revokeKeysWithoutUser(sql, actor, id));
    const factors = await eraseFactors(sql, id);
    const removed = { event: 'factor.removed', actor, detail: REASON } as const;
    if (factors > 0) await insertAudit(sql, removed, id, factors);
    const update = sql`
      update identity.users u
      set password_hash = null, password_generated = false, second_factor = false,
        updated_at = now()
      where u.id = ${id}`;
    await writeUser(sql, { event: 'user.secured', actor }, update);
    return {
      sessions,
      keys,
      factors,
      linkEnd: await insertLink?.(sql, actor, id),
    };
  });

import { arrayLiteral, type Database, type Sql } from '../../platform/db/sql.ts';
import {
  countAttempt,
  type Limit,
  type ThrottleRow,
  throttleState,
} from '../../platform/db/throttle.ts';
import { SCHEMA } from '../migrations.ts';
import { type AuditEntry, COMMAND_LINE, insertAudit } from './audit.ts';
import { changing } from './rights.ts';

/** Keys the digests of names and networks in the throttles. */
export async function readThrottleSecret(database: Database) {
  const [row] = await database.read(
    (sql) => sql<[{ secret: Buffer }]>`select secret from identity.throttle_secret`,
  );
  return row.secret;
}

/**
 * What is counted of logins with one name from one network: for both, the name and the network.
 * `known`: whether the user logged in from the network.
 */
export type LoginThrottle = Readonly<
  Record<'pair' | 'account' | 'network', Limit> & { known: ThrottleRow }
>;

/** A success clears the failures of the name from this network, and makes the network known. */
export const clearFailures = (sql: Sql, { pair, known }: LoginThrottle) => sql`
  with cleared as (
    update identity.throttles
    set attempts = 0, window_ends_at = now(), blocked_until = null, was_blocked = false
    where key = ${pair.key})
  insert into identity.throttles (key, attempts, window_ends_at, known_until)
  values (${known.key}, 0, now(), now() + interval '90 days')
  on conflict (key) do update set known_until = excluded.known_until`;

/**
 * Counts a failure under all limits, with its row in the trail, and a row for the delay that
 * begins.
 */
export function auditFailedLogin(
  database: Database,
  entry: AuditEntry,
  userId: string | null,
  throttle: LoginThrottle,
) {
  return database.transaction(async (sql) => {
    const { pair, account, network } = throttle;
    for (const limit of [pair, account, network]) await countAttempt(sql, SCHEMA.name, limit);
    const state = await throttleState(sql, SCHEMA.name, Object.values(throttle));
    await insertAudit(sql, entry, userId);
    // None for attempts during the delay: attackers could fill the disk.
    if (state.wait > 0) {
      const detail = `for ${Math.ceil(state.wait)} s`;
      await insertAudit(sql, { event: 'login.throttled', actor: entry.actor, detail }, userId);
    }
    return state;
  });
}

/** A flood from more addresses than this is seen at the limits of its accounts. */
const MAX_FAILURES = 20_000;

/** The addresses from which logins of a user failed in the last day: no failure counts longer. */
export async function failedLoginAddresses(database: Database, userId: string) {
  const rows = await database.list(
    (sql) => sql<Array<{ ip: string }>>`
    select distinct ip from (select ip from identity.audit
      where event in ('login.failed', 'password.failed', 'factor.failed')
        and created_at > now() - interval '24 hours'
        and ip is not null
        and user_id = ${userId}
      order by created_at desc limit ${MAX_FAILURES}) latest`,
  );
  return rows.map(({ ip }) => ip);
}

/**
 * Forgets the failures of a user, but not the networks that are known.
 * @returns how many limits had counted any
 */
export function clearLimits(database: Database, userId: string, keys: readonly Buffer[]) {
  return changing(database, COMMAND_LINE, userId, async (sql) => {
    const { count } = await sql`
      update identity.throttles
      set attempts = 0, window_ends_at = now(), blocked_until = null, was_blocked = false
      where key = any (${arrayLiteral(keys)}::text::bytea[])
        and attempts > 0
        and window_ends_at > now()`;
    if (count > 0) {
      await insertAudit(sql, { event: 'login.unlocked', actor: COMMAND_LINE }, userId, count);
    }
    return count;
  });
}

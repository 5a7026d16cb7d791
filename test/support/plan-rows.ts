/** Rows of identity, for which the planner has a choice. */
import { after } from 'node:test';
import type { TestDatabase } from './database.ts';
import { addUser, openIdentity } from './users.ts';

export const USERS = 3_000;
const SESSIONS = 20_000;
const LINES = 20_000;

/**
 * Enough rows that the planner has a choice, in the proportions of a service that has run for a
 * month.
 */
export async function fill({ sql, url }: TestDatabase): Promise<void> {
  await addUser(openIdentity({ after }, url), 'model');
  await sql`
    insert into identity.users (id, username, username_key, email, email_key, first_name,
      last_name, password_hash, enabled, verified, super_admin, created_at)
    select gen_random_uuid(), 'user-' || n, 'user-' || n, 'user-' || n || '@example.org',
      'user-' || n || '@example.org', '', '',
      (select password_hash from identity.users
        where username = 'model'), true, n % 2 = 0, n % 1000 = 0, now() - n * interval '1 minute'
    from generate_series(1, ${USERS}) n`;
  const owners = sql`(select id, row_number() over (order by id) as place
    from identity.users) owner`;
  // All but the last day's have expired, and of those some were ended.
  await sql`
    insert into identity.sessions (id, token_digest, user_id, expires_at, created_at, last_seen_at,
      updated_at, revoked, logged_out, ip, user_agent)
    select gen_random_uuid(), sha256(n::text::bytea), owner.id, made + interval '24 hours', made,
      made, made, n % 20 = 0, n % 5 = 0, '192.0.2.1', 'a browser'
    from (select n, now() - n * interval '30 days' / ${SESSIONS} as made
      from generate_series(1, ${SESSIONS}) n) s
    join ${owners} on owner.place = 1 + n % ${USERS}`;
  await sql`
    insert into identity.api_keys (id, key_digest, key_prefix, name, user_id, created_at)
    select gen_random_uuid(), sha256(place::text::bytea), 'key:12345678', '',
      case when place % 10 > 0 then owner.id end, now() - place * interval '1 hour' from ${owners}`;
  // Each user has entries of every kind: the last sign-in is among the last four of them.
  await sql`
    insert into identity.audit (id, created_at, event, via, actor_id, user_id, target_id, count,
      ip, detail)
    select gen_random_uuid(), now() - n * interval '1 minute',
      (array['login.succeeded', 'login.succeeded', 'login.succeeded', 'login.failed',
        'session.logged_out', 'user.changed'])[1 + (n + n / ${USERS}::int4) % 6],
      'session', owner.id, owner.id, gen_random_uuid(), 1, '192.0.2.1', ''
    from generate_series(1, ${LINES}) n join ${owners} on owner.place = 1 + n % ${USERS}`;
  await sql`
    insert into identity.throttles (key, attempts, window_ends_at)
    select sha256(n::text::bytea), 1, now() + interval '1 hour' from generate_series(1, 5000) n`;
  await sql`
    insert into identity.totp (user_id, key_id, client_key, commitment, blob, last_step)
    select id, '', '', '', '', 0 from identity.users`;
  await sql`insert into identity.recovery_codes (user_id, digest)
    select id, sha256(id::text::bytea) from identity.users`;
  await sql`
    insert into identity.passkeys
      (id, user_id, name, spki, counter, is_backup_eligible, signs_in_alone)
    select sha256(id::text::bytea), id, '', '', 0, false, false from identity.users`;
  await sql`
    insert into identity.pending_sign_ins (token_digest, user_id, password_digest, expires_at)
    select sha256(id::text::bytea), id, '', now() + interval '1 hour' from identity.users`;
  await sql`
    insert into identity.links (user_id, token_digest, removes_factors, expires_at)
    select id, sha256(id::text::bytea), false, now() + interval '1 hour' from identity.users`;
  await sql`vacuum analyze`;
}

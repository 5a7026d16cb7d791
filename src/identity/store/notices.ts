import type { Database } from '../../platform/db/pool.ts';

/** From the audit trail. Without names: what is sent to a chat, many can read. */
export async function readNotices(database: Database, since: string, until: string) {
  const rows = await database.list(
    (sql) => sql<Array<{ text: string }>>`
    select format('%s: %s, for %s accounts', what, count(*), count(distinct user_id)) as text
    from identity.audit
    join (values ('link.created', 'links made to set a password (invitations, resets)', 1),
      ('link.used', 'links used', 1), ('user.secured', 'accounts secured', 1),
      ('login.failed', 'wrong passwords and codes', 10),
      ('password.failed', 'wrong passwords and codes', 10),
      ('factor.failed', 'wrong passwords and codes', 10)) as told (event, what, least) using (event)
    where created_at > ${since}::text::timestamptz and created_at <= ${until}::text::timestamptz
    group by what, least
    having count(*) >= least
    order by what`,
  );
  return rows.map(({ text }) => text);
}

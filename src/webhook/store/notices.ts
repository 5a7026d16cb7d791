import type { Database } from '../../platform/db/pool.ts';
import { HANDSHAKE } from './unstored.ts';

/** Refused requests: once an hour for each sender and reason. */
export async function readNotices(database: Database, since: string, until: string) {
  const rows = await database.list(
    (sql) => sql<Array<{ text: string }>>`
    select 'events given up (dead): ' || count(*) as text
    from webhook.outcomes
    where status = 'dead' and ended_at > ${since}::text::timestamptz
      and ended_at <= ${until}::text::timestamptz
    having count(*) > 0
    union all
    select format('senders refused: %s (%s)', count(distinct token_id),
      string_agg(distinct reason, ', '))
    from webhook.unstored
    where first_at > ${since}::text::timestamptz and first_at <= ${until}::text::timestamptz
      and reason <> ${HANDSHAKE}
    having count(*) > 0`,
  );
  return rows.map(({ text }) => text);
}

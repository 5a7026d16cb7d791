/** The lengths of identity's lists, for tests that write rows past the service. */
import type { Sql } from 'postgres';

/** Counts the lists anew, as the schema's own step did when the totals came in. */
export async function recount(sql: Sql): Promise<void> {
  await sql`delete from identity.totals`;
  await sql`
    insert into identity.totals (list, owner, shard, n)
    select list, '00000000-0000-0000-0000-000000000000', 0, count(*) from (
      select 'users' as list from identity.users where deleted_at is null
      union all select 'sessions' from identity.sessions where deleted_at is null
      union all select 'api_keys' from identity.api_keys where deleted_at is null
      union all select 'audit' from identity.audit
      union all select 'audit ' || event from identity.audit
    ) as every_row group by list`;
  await sql`
    insert into identity.totals (list, owner, shard, n)
    select list || ' of user', user_id, 0, count(*) from (
      select 'sessions' as list, user_id from identity.sessions where deleted_at is null
      union all select 'api_keys', user_id from identity.api_keys where deleted_at is null and user_id is not null
    ) as every_row group by list, user_id`;
}

/** What is counted, without the shards; lists and owners that have nothing left out. */
export async function totals(sql: Sql): Promise<Array<{ list: string; owner: string; n: number }>> {
  return [...(await sql<Array<{ list: string; owner: string; n: number }>>`
    select list, owner, sum(n)::int as n from identity.totals group by list, owner having sum(n) <> 0 order by list, owner`)];
}

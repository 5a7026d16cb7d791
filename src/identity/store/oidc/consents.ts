import { arrayLiteral, type Database } from '../../../platform/db/sql.ts';

/** Remembers that a person lets a program have this. */
export const insertConsent = (
  database: Database,
  clientId: string,
  userId: string,
  scopes: readonly string[],
) =>
  database.write(
    (sql) => sql`
    insert into identity.oidc_consents (client_id, user_id, scopes)
    values (${clientId}, ${userId}, ${arrayLiteral(scopes)})
    on conflict (client_id, user_id) do update
    set scopes = excluded.scopes, given_at = now()`,
  );

/** Whether the person has let the program have all of this. */
export async function hasConsent(
  database: Database,
  clientId: string,
  userId: string,
  scopes: readonly string[],
) {
  const { count } = await database.read(
    (sql) => sql`
    select from identity.oidc_consents
    where client_id = ${clientId}
      and user_id = ${userId}
      and scopes @> ${arrayLiteral(scopes)}::text::text[]`,
  );
  return count > 0;
}

export type ListedProgram = Readonly<{
  id: string;
  name: string;
  scopes: readonly string[];
  last_at: Date;
}>;

/** The programs that have a consent of the user, or at which the user has signed in. */
export const listPrograms = (database: Database, userId: string) =>
  database.list(
    (sql) => sql<ListedProgram[]>`
    select c.id, c.name, to_json(coalesce(used.scopes, given.scopes)) as scopes,
      coalesce(used.at, given.given_at) as last_at
    from identity.oidc_clients c
    left join identity.oidc_consents given on given.client_id = c.id and given.user_id = ${userId}
    left join lateral (
      select granted.scopes, granted.created_at as at
      from identity.oidc_grants granted
      join identity.sessions s on s.id = granted.session_id
      where granted.client_id = c.id and s.user_id = ${userId} and granted.ended_at is null
      order by granted.created_at desc limit 1
    ) used on true
    where given.user_id is not null or used.at is not null
    order by c.name, c.id`,
  );

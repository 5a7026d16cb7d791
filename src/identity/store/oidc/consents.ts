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
    select distinct on (c.name, c.id) c.id, c.name, to_json(had.scopes) as scopes,
      had.at as last_at
    from (
      select client_id, scopes, given_at as at
      from identity.oidc_consents
      where user_id = ${userId}
      union all
      select granted.client_id, granted.scopes, granted.created_at
      from identity.oidc_grants granted
      join identity.sessions s on s.id = granted.session_id
      where s.user_id = ${userId} and granted.ended_at is null
    ) had
    join identity.oidc_clients c on c.id = had.client_id
    order by c.name, c.id, had.at desc`,
  );

import { sha256 } from '../../../platform/crypto/token.ts';
import { arrayLiteral, type Database, type Fragment, type Sql } from '../../../platform/db/sql.ts';
import { type ClientChange, isClientId, type NewClient } from '../../oidc/clients.ts';
import type { Actor, AuditEvent } from '../audit.ts';
import { changeRows } from '../rights.ts';
import { firstRow } from '../rows.ts';

/** `has_secret`: whether it can keep a secret, and so authenticates (RFC 6749, 2.1). */
export type Client = NewClient &
  Readonly<{ enabled: boolean; has_secret: boolean; created_at: Date; updated_at: Date }>;

const clientsSql = (sql: Sql) => sql`
  id, name, to_json(redirect) as redirect, to_json(logout_uri) as logout_uri, backchannel_uri,
  to_json(groups) as groups, pkce, consent, refresh, second_factor, id_token_seconds, enabled,
  secret_digest is not null as has_secret, created_at, updated_at
  from identity.oidc_clients`;

/** @param id may be any text */
export async function findClient(
  database: Database,
  id: string,
  alsoSql: (sql: Sql) => Fragment = (sql) => sql`true`,
) {
  if (!isClientId(id)) return null;
  return firstRow(
    database.read(
      (sql) => sql<Client[]>`select ${clientsSql(sql)} where id = ${id} and ${alsoSql(sql)}`,
    ),
  );
}

/**
 * @param secret null from a program that says that it has none
 * @returns the program, if that is its secret, or the one before it during the overlap
 */
export function findClientBySecret(database: Database, id: string, secret: string | null) {
  const digest = secret === null ? null : sha256(secret);
  return findClient(
    database,
    id,
    (sql) => sql`
    (secret_digest is not distinct from ${digest}
      or (previous_digest = ${digest} and previous_until > now()))`,
  );
}

export const listClients = (database: Database) =>
  database.list((sql) => sql<Client[]>`select ${clientsSql(sql)} order by id`);

/** The columns of what is given. */
function columnsOf(values: NewClient | ClientChange) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return Object.fromEntries(
    given.map(([name, value]) => [name, typeof value === 'object' ? arrayLiteral(value) : value]),
  );
}

/**
 * The audit trail names the program, whose id is no UUID, in its detail.
 * @returns how many programs it changed
 */
const change = (
  database: Database,
  actor: Actor,
  event: AuditEvent,
  detail: string,
  statement: (sql: Sql) => Fragment,
) =>
  changeRows(
    database,
    { event, actor, detail },
    null,
    (sql) => sql`${statement(sql)} returning null::uuid as id, null::uuid as user_id`,
  );

/**
 * @param secret null for a program that cannot keep one
 * @returns 0 if the id is taken
 */
export const insertClient = (
  database: Database,
  actor: Actor,
  client: NewClient,
  secret: string | null,
) =>
  change(database, actor, 'client.created', client.id, (sql) => {
    const secret_digest = secret === null ? null : sha256(secret);
    const row = { ...columnsOf(client), secret_digest, enabled: true };
    return sql`insert into identity.oidc_clients ${sql(row)} on conflict do nothing`;
  });

/** What the program has received stays valid as far as the new values allow it. */
export function updateClient(database: Database, actor: Actor, id: string, values: ClientChange) {
  const columns = columnsOf(values);
  const changed = values.enabled === false ? ['disabled'] : Object.keys(columns);
  return change(
    database,
    actor,
    'client.changed',
    `${id}: ${changed.join(', ')}`,
    (sql) => sql`
    update identity.oidc_clients set ${sql(columns)}, updated_at = now() where id = ${id}`,
  );
}

/**
 * Gives the program another secret.
 * @param overlapSeconds for which the earlier secret stays valid
 * @returns 0 without such a program, or if it has no secret
 */
export const replaceSecret = (
  database: Database,
  actor: Actor,
  id: string,
  secret: string,
  overlapSeconds: number,
) =>
  change(
    database,
    actor,
    'client.changed',
    `${id}: new secret`,
    (sql) => sql`
    update identity.oidc_clients
    set previous_digest = secret_digest,
      previous_until = now() + make_interval(secs => ${overlapSeconds}),
      secret_digest = ${sha256(secret)}, updated_at = now()
    where id = ${id} and secret_digest is not null`,
  );

/** With all that it has received. @returns 0 without such a program */
export const deleteClient = (database: Database, actor: Actor, id: string) =>
  change(
    database,
    actor,
    'client.deleted',
    id,
    (sql) => sql`delete from identity.oidc_clients where id = ${id}`,
  );

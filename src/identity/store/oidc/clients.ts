import { sha256 } from '../../../platform/crypto/token.ts';
import { arrayLiteral, type Database, type Sql } from '../../../platform/db/sql.ts';
import { type ClientInput, isClientId } from '../../oidc/clients.ts';
import { type Actor, audited, type AuditEvent } from '../audit.ts';
import { changing } from '../rights.ts';
import { firstRow } from '../rows.ts';

/** `has_secret`: whether it can keep a secret, and so authenticates (RFC 6749, 2.1). */
export type Client = ClientInput &
  Readonly<{ has_secret: boolean; created_at: Date; updated_at: Date }>;

const columns = (sql: Sql) => sql`
  id, name, to_json(redirect) as redirect, to_json(logout_uri) as logout_uri, backchannel_uri,
  to_json(groups) as groups, pkce, consent, refresh, second_factor, id_token_seconds, enabled,
  secret_digest is not null as has_secret, created_at, updated_at`;

/** @param id may be any text */
export async function findClient(database: Database, id: string) {
  if (!isClientId(id)) return null;
  return firstRow(
    database.read(
      (sql) => sql<Client[]>`select ${columns(sql)} from identity.oidc_clients where id = ${id}`,
    ),
  );
}

/**
 * @param secret null from a program that says that it has none
 * @returns the program, if that is its secret, or the one before it during the overlap
 */
export async function findClientBySecret(database: Database, id: string, secret: string | null) {
  if (!isClientId(id)) return null;
  const digest = secret === null ? null : sha256(secret);
  return firstRow(
    database.read(
      (sql) => sql<Client[]>`
      select ${columns(sql)} from identity.oidc_clients
      where id = ${id}
        and (secret_digest is not distinct from ${digest}
          or (previous_digest = ${digest} and previous_until > now()))`,
    ),
  );
}

export const listClients = (database: Database) =>
  database.list(
    (sql) => sql<Client[]>`select ${columns(sql)} from identity.oidc_clients order by id`,
  );

/** @param client as its schema read it: without further members */
const valuesOf = (client: ClientInput) => ({
  ...client,
  redirect: arrayLiteral(client.redirect),
  logout_uri: arrayLiteral(client.logout_uri),
  groups: arrayLiteral(client.groups),
});

/** The audit trail names the program, whose id is no UUID, in its detail. */
const entryOf = (event: AuditEvent, actor: Actor, id: string, more = '') => ({
  event,
  actor,
  detail: more ? `${id}: ${more}` : id,
});
const AUDITED = (sql: Sql) => sql`returning null::uuid as id, null::uuid as user_id`;

/**
 * @param secret null for a program that cannot keep one
 * @returns false if the id is taken
 */
export const insertClient = (
  database: Database,
  actor: Actor,
  client: ClientInput,
  secret: string | null,
) =>
  changing(database, actor, null, async (sql) => {
    const secret_digest = secret === null ? null : sha256(secret);
    const row = { ...valuesOf(client), secret_digest };
    const insert = sql`
      insert into identity.oidc_clients ${sql(row)} on conflict do nothing ${AUDITED(sql)}`;
    const inserted = await audited(sql, entryOf('client.created', actor, client.id), insert);
    return inserted.length > 0;
  });

/** What the program has received stays valid as far as the new values allow it. */
export const updateClient = (database: Database, actor: Actor, client: ClientInput) =>
  changing(database, actor, null, async (sql) => {
    const { id, enabled } = client;
    const update = sql`
      update identity.oidc_clients set ${sql(valuesOf(client))}, updated_at = now()
      where id = ${id} ${AUDITED(sql)}`;
    const entry = entryOf('client.changed', actor, id, enabled ? '' : 'disabled');
    return (await audited(sql, entry, update)).length > 0;
  });

/**
 * Gives the program another secret.
 * @param overlapSeconds for which the earlier secret stays valid
 * @returns false without such a program, or if it has no secret
 */
export const replaceSecret = (
  database: Database,
  actor: Actor,
  id: string,
  secret: string,
  overlapSeconds: number,
) =>
  changing(database, actor, null, async (sql) => {
    const update = sql`
      update identity.oidc_clients
      set previous_digest = secret_digest,
        previous_until = now() + make_interval(secs => ${overlapSeconds}),
        secret_digest = ${sha256(secret)}, updated_at = now()
      where id = ${id} and secret_digest is not null ${AUDITED(sql)}`;
    const entry = entryOf('client.changed', actor, id, 'new secret');
    return (await audited(sql, entry, update)).length > 0;
  });

/** With all that it has received. @returns false without such a program */
export const deleteClient = (database: Database, actor: Actor, id: string) =>
  changing(database, actor, null, async (sql) => {
    const remove = sql`delete from identity.oidc_clients where id = ${id} ${AUDITED(sql)}`;
    return (await audited(sql, entryOf('client.deleted', actor, id), remove)).length > 0;
  });

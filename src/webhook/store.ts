import type { Database, Sql } from '../db/pool.ts';

export interface Token {
  readonly id: string;
  readonly name: string;
  readonly created_at: Date;
  readonly revoked_at: Date | null;
}

/** @returns the id of the live token with this digest, or null */
export async function findToken(database: Database, tokenDigest: Buffer): Promise<string | null> {
  const [row] = await database.read(
    (sql) => sql<Array<{ id: string }>>`select id from webhook.tokens where digest = ${tokenDigest} and revoked_at is null`,
  );
  return row?.id ?? null;
}

export async function insertToken(sql: Sql, id: string, name: string, tokenDigest: Buffer): Promise<Token> {
  const [token] = await sql<[Token]>`
    insert into webhook.tokens (id, name, digest) values (${id}, ${name}, ${tokenDigest})
    returning id, name, created_at, revoked_at`;
  return token;
}

export async function anyTokenExists(sql: Sql): Promise<boolean> {
  const [row] = await sql<[{ found: boolean }]>`select exists (select 1 from webhook.tokens) as found`;
  return row.found;
}

/** Oldest first, the revoked included. */
export async function listTokens(database: Database): Promise<Token[]> {
  return database.list((sql) => sql<Token[]>`select id, name, created_at, revoked_at from webhook.tokens order by created_at, id`);
}

/** @returns false when there is no such token; revoking twice is not an error and keeps the first time */
export async function revokeToken(database: Database, id: string): Promise<boolean> {
  const result = await database.write((sql) => sql`update webhook.tokens set revoked_at = coalesce(revoked_at, now()) where id = ${id}`);
  return result.count === 1;
}

export interface NewEvent {
  readonly id: string;
  readonly tokenId: string;
  readonly deliveryId: string | null;
  readonly event: string;
  readonly body: Buffer;
}

export interface Acceptance {
  readonly id: string;
  readonly status: 'accepted' | 'duplicate';
}

/**
 * Stores an event. Whether it came before is decided by the unique index, never by looking first: two copies in flight
 * would both find nothing.
 */
export async function insertEvent(database: Database, event: NewEvent): Promise<Acceptance> {
  const inserted = await database.write(
    (sql) => sql`
      insert into webhook.events (id, token_id, delivery_id, event, body)
      values (${event.id}, ${event.tokenId}, ${event.deliveryId}, ${event.event}, ${event.body})
      on conflict (token_id, delivery_id) do nothing`,
  );
  if (inserted.count === 1) return { id: event.id, status: 'accepted' };
  const [first] = await database.read(
    (sql) => sql<Array<{ id: string }>>`
      select id from webhook.events where token_id = ${event.tokenId} and delivery_id = ${event.deliveryId}`,
  );
  // The first one was removed between the two statements: there is room now.
  return first ? { id: first.id, status: 'duplicate' } : insertEvent(database, event);
}

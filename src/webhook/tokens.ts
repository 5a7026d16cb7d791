import { randomUUID } from 'node:crypto';
import { digest, randomToken } from '../crypto/token.ts';
import { oneAtATime } from '../db/migrate.ts';
import type { Database } from '../db/pool.ts';
import { SCHEMA } from './migrations.ts';
import { anyTokenExists, insertToken, type Token } from './store.ts';

/** @returns the stored record and the token itself, which is shown once and kept nowhere */
export async function createToken(database: Database, name: string): Promise<{ record: Token; token: string }> {
  const token = randomToken();
  return { record: await database.write((sql) => insertToken(sql, randomUUID(), name, digest(token))), token };
}

/**
 * The first token, where there is none at all.
 * @param given the one to use, or null to make one
 * @returns null when there is a token already, whoever made it, and whether revoked or not
 */
export async function createFirstToken(database: Database, given: string | null): Promise<string | null> {
  const token = given ?? randomToken();
  return oneAtATime(database, SCHEMA, 'first token', async (sql) => {
    if (await anyTokenExists(sql)) return null;
    await insertToken(sql, randomUUID(), 'first', digest(token));
    return token;
  });
}

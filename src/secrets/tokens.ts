import { randomUUID } from 'node:crypto';
import { digest, randomToken } from '../crypto/token.ts';
import type { Database } from '../db/pool.ts';
import { PREFIX } from './caller.ts';
import { insertToken, replaceToken, type Token } from './store/tokens.ts';

const newToken = (): string => PREFIX + randomToken();

/** @returns its id, and the token itself, which is not stored */
export async function createToken(database: Database, request: Pick<Token, 'name' | 'role'>) {
  const [id, token] = [randomUUID(), newToken()];
  await insertToken(database, { ...request, id, digest: digest(token) });
  return { id, token };
}

/** The old token stays valid for `overlap` seconds. @returns the new one, or null if no active token has this id */
export async function rotateToken(database: Database, id: string, overlap: number): Promise<string | null> {
  const token = newToken();
  return (await replaceToken(database, id, digest(token), overlap)) ? token : null;
}

/** A client of the secrets service with the correct bearer token, and what the database stores. */
import { randomBytes } from 'node:crypto';
import type { Sql } from 'postgres';
import { type Answer, ask, AUTH_TOKEN } from './gatehouse.ts';

export interface SecretsClient {
  encrypt(body: unknown): Promise<Answer>;
  /** Encrypts; throws unless the reply is 201. */
  keep(
    password: string,
    conditions?: { expires_in?: number; max_reads?: number; passphrase?: string },
  ): Promise<{ id: string; secret: string; expires_at: string | null }>;
  decrypt(id: string, secret: unknown, passphrase?: unknown): Promise<Answer>;
  options(): Promise<Answer>;
  /** @param query with its question mark; without one, the whole list */
  list(query?: string): Promise<Answer>;
  receipt(id: string): Promise<Answer>;
  remove(id: string): Promise<Answer>;
}

/** The same request id everywhere, so that replies can be compared byte by byte. */
const SAME = { 'x-request-id': 'test' };

/** @param more headers for every request, such as X-Forwarded-For */
export function secretsClient(
  baseUrl: string,
  more: Readonly<Record<string, string>> = {},
): SecretsClient {
  const headers = { ...SAME, ...more };
  const encrypt = (body: unknown) =>
    ask('POST', `${baseUrl}/api/store/encrypt`, { bearer: AUTH_TOKEN, body, headers });
  return {
    encrypt,
    async keep(password, conditions = {}) {
      const answer = await encrypt({ password, ...conditions });
      if (answer.status !== 201)
        throw new Error(`encrypt answered ${answer.status}: ${answer.text}`);
      return answer.json;
    },
    decrypt: (id, secret, passphrase) =>
      ask('POST', `${baseUrl}/api/store/decrypt?id=${id}`, {
        bearer: AUTH_TOKEN,
        body: passphrase === undefined ? { secret } : { secret, passphrase },
        headers,
      }),
    options: () => ask('GET', `${baseUrl}/api/store/options`, { bearer: AUTH_TOKEN, headers }),
    list: (query = '') =>
      ask('GET', `${baseUrl}/api/store${query}`, { bearer: AUTH_TOKEN, headers }),
    receipt: (id) => ask('GET', `${baseUrl}/api/store/${id}`, { bearer: AUTH_TOKEN, headers }),
    remove: (id) => ask('DELETE', `${baseUrl}/api/store/${id}`, { bearer: AUTH_TOKEN, headers }),
  };
}

/** A key of the right form, of no secret. */
export const wrongKey = (): string => randomBytes(32).toString('base64url');

/** The columns of a secret as stored; none if there is no such row. Tests look into them as they like. */
export async function storedSecret(sql: Sql, id: string): Promise<Record<string, any>> {
  const [row] = await sql`select * from secrets.secrets where id = ${id}`;
  return { ...row };
}

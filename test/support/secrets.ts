/** A client of the secrets service with the correct bearer token, and what the database stores. */
import { randomBytes } from 'node:crypto';
import type { Sql } from 'postgres';
import { ask, AUTH_TOKEN } from './gatehouse.ts';

interface Conditions {
  readonly expires_in?: number;
  readonly max_reads?: number;
  readonly passphrase?: string;
}

/** What is stored, as a reply names it. */
interface Kept {
  readonly id: string;
  readonly secret: string;
  readonly expires_at: string | null;
}

/** The same request id everywhere, so that replies can be compared byte by byte. */
const SAME = { 'x-request-id': 'test' };

/** @param more headers for every request, such as X-Forwarded-For */
export function secretsClient(baseUrl: string, more: Readonly<Record<string, string>> = {}) {
  const headers = { ...SAME, ...more };
  const call = (method: string, path: string, body?: unknown) =>
    ask(method, `${baseUrl}/api/store${path}`, { bearer: AUTH_TOKEN, body, headers });
  const encrypt = (body: unknown) => call('POST', '/encrypt', body);
  return {
    encrypt,
    /** Encrypts; throws unless the reply is 201. */
    async keep(password: string, conditions: Conditions = {}): Promise<Kept> {
      const answer = await encrypt({ password, ...conditions });
      if (answer.status !== 201)
        throw new Error(`encrypt answered ${answer.status}: ${answer.text}`);
      return answer.json;
    },
    decrypt: (id: string, secret: unknown, passphrase?: unknown) =>
      call('POST', `/decrypt?id=${id}`, { secret, passphrase }),
    options: () => call('GET', '/options'),
    /** @param query with its question mark; without one, the whole list */
    list: (query = '') => call('GET', query),
    receipt: (id: string) => call('GET', `/${id}`),
    remove: (id: string) => call('DELETE', `/${id}`),
  };
}

export type SecretsClient = ReturnType<typeof secretsClient>;

/** A key of the right form, of no secret. */
export const wrongKey = (): string => randomBytes(32).toString('base64url');

/**
 * The columns of a secret as stored; none if there is no such row. Tests look into them as they
 * like.
 */
export async function storedSecret(sql: Sql, id: string): Promise<Record<string, any>> {
  const [row] = await sql`select * from secrets.secrets where id = ${id}`;
  return { ...row };
}

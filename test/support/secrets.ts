/** The three operations of the secrets service, as a caller with the right bearer token. */
import { type Answer, ask, AUTH_TOKEN } from './gatehouse.ts';

export interface SecretsClient {
  encrypt(body: unknown): Promise<Answer>;
  /** Encrypts and insists that it worked. */
  keep(password: string, conditions?: { expires_in?: number; max_reads?: number }): Promise<{ id: string; secret: string; expires_at: string | null }>;
  decrypt(id: string, secret: unknown): Promise<Answer>;
  list(): Promise<Answer>;
}

/** The same request id everywhere, so that answers can be compared byte by byte. */
const headers = { 'x-request-id': 'test' };

export function secretsClient(baseUrl: string): SecretsClient {
  const encrypt = (body: unknown) => ask('POST', `${baseUrl}/api/store/encrypt`, { bearer: AUTH_TOKEN, body, headers });
  return {
    encrypt,
    async keep(password, conditions = {}) {
      const answer = await encrypt({ password, ...conditions });
      if (answer.status !== 201) throw new Error(`encrypt answered ${answer.status}: ${answer.text}`);
      return answer.json;
    },
    decrypt: (id, secret) => ask('POST', `${baseUrl}/api/store/decrypt?id=${id}`, { bearer: AUTH_TOKEN, body: { secret }, headers }),
    list: () => ask('GET', `${baseUrl}/api/store`, { bearer: AUTH_TOKEN, headers }),
  };
}

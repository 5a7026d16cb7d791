import { sha256 } from '../platform/crypto/token.ts';
import { createReadiness } from '../platform/db/readiness.ts';
import type { Database } from '../platform/db/pool.ts';
import { type Limit, takeAttempt, throttleKey } from '../platform/db/throttle.ts';
import { Failure, type RequestInfo } from '../platform/http/route/route.ts';
import { createCredentialCheck } from '../platform/http/credentials/guess-limit.ts';
import type { ServiceContext } from '../platform/runtime/context.ts';
import { DAY_SECONDS } from '../platform/runtime/duration.ts';
import { createLimiter, type Limiter } from '../platform/runtime/limiter.ts';
import { createServerKey, type ServerKey } from './envelope.ts';
import { SCHEMA } from './migrations.ts';
import type { SecretsSettings } from './settings.ts';

/** How many readers of one secret may try a passphrase, or wait for their turn. */
const MAX_READERS = 32;

export type SecretsService = ReturnType<typeof createSecrets>;

/** What handlers work with: keys and digests instead of the texts they are derived from. */
export function createSecrets(
  settings: SecretsSettings,
  database: Database,
  context: ServiceContext,
) {
  const { serverSecret, previousSecrets, authTokens, ...others } = settings;
  const { log, metrics } = context;
  const serverKey = createServerKey(serverSecret);
  return {
    ...others,
    ...context,
    database,
    countEvent: metrics.counter(
      'gatehouse_secret_events_total',
      'What happened to secrets, by event.',
      ['event'],
    ),
    // One at a time for each secret, so that correct passphrases sent together do not use up each
    // other's attempts.
    tryInTurn: createKeyedQueue(MAX_READERS, 'the passphrase of one secret'),
    /** Encrypts; also the first of `openingKeys`. */
    serverKey,
    openingKeys: [serverKey, ...previousSecrets.map(createServerKey)],
    tokens: authTokens.map((token, index) => ({
      digest: sha256(token),
      name: index === 0 ? 'current' : 'previous',
    })),
    countToken: metrics.counter(
      'gatehouse_auth_tokens_total',
      'Requests, by current or previous token.',
      ['token'],
    ),
    ...createCredentialCheck(),
    readiness: createReadiness(database, SCHEMA, log),
  };
}

/**
 * Runs work with the same key one after the other, and work with different keys at the same time.
 * @param length how much may run or wait for each key; beyond it, `Overloaded` is thrown
 * @param what as for a limiter
 */
export function createKeyedQueue(length: number, what: string) {
  const limiters = new Map<string, Limiter>();
  return <T>(key: string, work: () => Promise<T>) => {
    const limiter = limiters.get(key) ?? createLimiter(1, length - 1, what);
    limiters.set(key, limiter);
    return limiter.run(work).finally(() => {
      if (limiter.running() === 0 && limiters.get(key) === limiter) limiters.delete(key);
    });
  };
}

/**
 * How many attempts. `anyone` and `answer` count each one, the others those that fail. An id alone
 * cannot block a secret: only holders of the key can try a passphrase.
 */
const LIMITS = {
  link: { attempts: 60, seconds: 600 }, // share links of any secret, from one network
  network: { attempts: 5, seconds: 900 }, // passphrases of one secret, from one network
  secret: { attempts: 30, seconds: DAY_SECONDS }, // passphrases of one secret, from everywhere
  anyone: { attempts: 30, seconds: 3_600 }, // secrets and requests without a credential, likewise
  answer: { attempts: 30, seconds: 3_600 }, // answers to one request, from one network
};

export const limitOf = (
  serverKey: ServerKey,
  name: keyof typeof LIMITS,
  ...parts: string[]
): Limit => ({
  ...LIMITS[name],
  mode: 'window',
  key: throttleKey(serverKey.throttleKey, [name, ...parts]),
});

/** Counts an attempt in advance. @returns a failure if there is none left */
export async function countAttempt(
  { database, serverKey }: SecretsService,
  name: keyof typeof LIMITS,
  ...parts: string[]
) {
  const wait = await takeAttempt(database, SCHEMA.name, limitOf(serverKey, name, ...parts));
  return wait > 0 ? new Failure('too_many_requests', { retryAfterSeconds: wait }) : null;
}

/**
 * Logs and counts what happened to a secret. The statement that makes the change also updates the
 * receipt.
 */
export function recordEvent(
  { log, countEvent }: SecretsService,
  event:
    'stored' | 'read' | 'read failed' | 'deleted' | 'expired' | 'requested' | 'request withdrawn',
  { id, key_id }: Readonly<{ id: string; key_id: string | null }>,
  request: RequestInfo | null,
  reason?: string,
) {
  countEvent([event.replace(' ', '_')]);
  log.info(`secret ${event}`, {
    secret_id: id,
    key_id,
    reason,
    request_id: request?.requestId,
    ip: request?.address,
  });
}

export const KEY_MISSING =
  'a server secret is missing: add the one with this key id to SERVER_SECRET_PREVIOUS';
const ALTERED = 'a stored secret or request has been altered: swapped, truncated or edited';

/**
 * Logged as an error: the operator must act.
 * @param route of a request without a credential, which limits the lines
 */
export function serverFailure(
  { log }: SecretsService,
  code: 'secret_damaged' | 'key_unknown',
  { id, key_id }: Readonly<{ id: string; key_id: string }>,
  route?: string,
) {
  const fields = {
    secret_id: id,
    key_id,
    route,
  };
  if (code === 'key_unknown') log.error(KEY_MISSING, fields);
  else log.error(ALTERED, fields);
  return new Failure(code);
}

import { createServerKey } from '../crypto/box.ts';
import { digest } from '../crypto/token.ts';
import { createReadiness } from '../db/schema.ts';
import type { Database } from '../db/pool.ts';
import type { RequestInfo } from '../http/call.ts';
import { createGuessLimit } from '../http/guesses.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { createKeyedQueue } from '../runtime/queue.ts';
import type { Caller } from './caller.ts';
import { SCHEMA } from './schema.ts';
import type { SecretsSettings } from './settings.ts';

export type Limits = SecretsSettings['limits'];
export type SecretsService = ReturnType<typeof createSecrets>;

/** Who sends a request without a token. */
type Visitor = (request: RequestInfo) => Caller | null;

const MAX_READERS = 32;

/** What handlers work with: keys and digests instead of the texts they are derived from. */
export function createSecrets(
  settings: SecretsSettings,
  database: Database,
  context: ServiceContext,
  visitor: Visitor | null = null,
) {
  const { serverSecret, previousSecrets, authTokens, ...others } = settings;
  const { log, metrics } = context;
  const serverKey = createServerKey(serverSecret);
  return {
    ...others,
    ...context,
    database,
    visitor,
    countEvent: metrics.counter(
      'gatehouse_secret_events_total',
      'What happened to secrets, by event.',
      ['event'],
    ),
    /** Passphrases of one secret are tried one at a time. */
    passphraseQueue: createKeyedQueue(MAX_READERS, 'the passphrase of one secret'),
    /** Encrypts; also the first of `openingKeys`. */
    serverKey,
    openingKeys: [serverKey, ...previousSecrets.map(createServerKey)],
    tokens: authTokens.map((token, index) => ({
      digest: digest(token),
      name: index === 0 ? 'current' : 'previous',
    })),
    countToken: metrics.counter(
      'gatehouse_auth_tokens_total',
      'Requests, by current or previous token.',
      ['token'],
    ),
    limitGuesses: createGuessLimit(),
    readiness: createReadiness(database, SCHEMA, log),
  };
}

/** Logs and counts what happened to a secret. The statement that makes the change also updates the receipt. */
export function recordEvent(
  { log, countEvent }: SecretsService,
  event: 'stored' | 'read' | 'read failed' | 'deleted' | 'expired',
  secret: Readonly<{ id: string; key_id: string | null }>,
  request: RequestInfo | null,
  reason?: string,
): void {
  countEvent([event.replace(' ', '_')]);
  const from = { request_id: request?.requestId, ip: request?.address };
  log.info(`secret ${event}`, { secret_id: secret.id, key_id: secret.key_id, reason, ...from });
}

export const KEY_MISSING =
  'a server secret is missing: add the one with this key id to SERVER_SECRET_PREVIOUS';

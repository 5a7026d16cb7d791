import { commitmentOf, isUnaltered, KEY_BYTES, type ServerKey, unlock, unseal } from '../crypto/box.ts';
import { stretch } from '../crypto/password.ts';
import { fromBase64url } from '../crypto/text.ts';
import { sameDigest } from '../crypto/token.ts';
import type { Database } from '../db/pool.ts';
import { giveBackAttempts, type Limit, readThrottle, takeAttempt, throttleKey } from '../db/throttle.ts';
import { networkOf } from '../http/address.ts';
import type { Call, RequestInfo } from '../http/call.ts';
import { type ErrorCode, Failure } from '../http/errors.ts';
import { type Infer, object, text } from '../http/shape.ts';
import { passphraseShape } from './encrypt.ts';
import { SCHEMA } from './migrations.ts';
import { KEY_MISSING, recordEvent, type SecretsService } from './service.ts';
import { countFailedRead, findSecret, useUpRead } from './store.ts';

export const decryptRequestShape = object({
  secret: text({ min: 1, max: 256, description: 'The encryption key that encrypt returned' }),
  passphrase: passphraseShape('If the secret is locked with one'),
});
export const openedShape = object({ password: text() });
type DecryptRequest = Infer<typeof decryptRequestShape>;

export const decrypt = (call: Call<null, unknown, { id: string }, DecryptRequest>, service: SecretsService) =>
  openSecret(service, call.request, call.query.id, call.body);

/** Possible guesses, and failures that disclose to somebody without the key that the secret exists. */
const COUNTED: readonly ErrorCode[] = ['not_found', 'wrong_passphrase', 'secret_damaged', 'key_unknown'];

/** Share links: id and key are the credential, so no bearer token is required. */
export async function reveal(call: Call<null, { id: string }, unknown, DecryptRequest>, service: SecretsService) {
  const limit = limitOf(service, 'link', networkOf(call.request.address));
  const { wait } = await readThrottle(service.database, SCHEMA, [limit]);
  if (wait > 0) return new Failure('too_many_requests', { retryAfterSeconds: wait });
  const reply = await openSecret(service, call.request, call.path.id, call.body);
  // Counted afterwards, because keys cannot be guessed anyway: this only limits the cost of a flood of wrong ones.
  if (reply instanceof Failure && COUNTED.includes(reply.code)) await takeAttempt(service.database, SCHEMA, limit);
  return reply;
}

/** How many attempts may fail. Nobody can block a secret by its id: only the holder of the key can try a passphrase. */
const LIMITS = {
  /** Share links: any secret, from one network. */
  link: { mode: 'window', attempts: 60, seconds: 600 },
  /** Passphrases: one secret, from one network. */
  network: { mode: 'window', attempts: 5, seconds: 900 },
  /** Passphrases: one secret, from everywhere. */
  secret: { mode: 'window', attempts: 30, seconds: 86_400 },
} as const;

function limitOf({ serverKey }: SecretsService, name: keyof typeof LIMITS, ...parts: readonly string[]): Limit {
  return { ...LIMITS[name], key: throttleKey(serverKey.throttleKey, [name, ...parts]) };
}

/**
 * The order matters. The text is decrypted in memory first, then one statement uses up the read and updates the
 * receipt, and the text is returned only after that commit. So a damaged row uses nothing up, a read that cannot be
 * recorded does not happen, and a crash may lose a read but never returns one twice.
 */
async function openSecret(service: SecretsService, request: RequestInfo, id: string, body: DecryptRequest) {
  const { database, hashing, log, openingKeys, passphraseQueue } = service;
  const recordFailedRead = async (reason: string) =>
    recordEvent(service, 'read failed', { id, key_id: await countFailedRead(database, id) }, request, reason);
  const notFound = async (reason: string, message = NOT_FOUND) => {
    await recordFailedRead(reason);
    return new Failure('not_found', { message });
  };
  const clientKey = fromBase64url(body.secret);
  if (clientKey?.length !== KEY_BYTES) return notFound('malformed key', MALFORMED);
  const row = await findSecret(database, id);
  if (!row) return notFound(ENDED);
  const serverFailure = <Code extends ErrorCode>(code: Code, message: string) => {
    log.error(message, { secret_id: id, key_id: row.key_id });
    return new Failure(code);
  };
  const fits = (key: ServerKey) => sameDigest(row.commitment, commitmentOf(key, clientKey, id));
  const serverKey = openingKeys.find((key) => key.id === row.key_id);
  if (!serverKey && !openingKeys.some(fits)) {
    return row.expired ? notFound(ENDED) : serverFailure('key_unknown', KEY_MISSING);
  }
  const metadata = { id, expiresAt: row.expires_at?.getTime() ?? null, maxReads: row.max_reads };
  // A key that fits although none has the row's key id: the key id was edited.
  if (!serverKey || !isUnaltered(serverKey, metadata, row, row.tag)) return serverFailure('secret_damaged', ALTERED);
  if (row.expired) return notFound(ENDED);
  if (!fits(serverKey)) return notFound('wrong key');
  const content = unseal(serverKey, clientKey, metadata, row);
  if (!content) return serverFailure('secret_damaged', ALTERED);
  let plaintext: Buffer;
  if (Buffer.isBuffer(content)) {
    plaintext = content;
  } else {
    const { passphrase } = body;
    if (passphrase === undefined) return new Failure('passphrase_needed');
    const limits = [limitOf(service, 'network', id, networkOf(request.address)), limitOf(service, 'secret', id)];
    const attempt = async () => {
      // With priority: this caller has the key, and a flood of logins must not delay it.
      const stretched = await hashing.run(() => stretch(passphrase, content.kdfParams), true);
      return unlock(serverKey, clientKey, metadata, content, stretched);
    };
    // One at a time, so that correct passphrases sent together do not use up each other's attempts.
    const unlocked = await passphraseQueue.run(id, () => withAttempts(database, limits, attempt));
    if (unlocked instanceof Failure) return unlocked;
    if (!unlocked) {
      await recordFailedRead('wrong passphrase');
      return new Failure('wrong_passphrase');
    }
    plaintext = unlocked;
  }
  if (!(await useUpRead(database, { id, commitment: row.commitment }))) return notFound('another reader was first');
  recordEvent(service, 'read', { id, key_id: row.key_id }, request);
  return { data: { password: plaintext.toString('utf8') } };
}

const ENDED = 'unknown or ended';
const ALTERED = 'a stored secret has been altered: swapped, truncated or edited';
const MALFORMED = 'This is not a key. A key has 43 characters of A-Z a-z 0-9 - _. Copy all of it again.';
/** The same for an unknown id, a wrong key, and an expired, deleted or used-up secret. */
const NOT_FOUND =
  'No secret opens with this id and key. Check both for typing mistakes; ' +
  'otherwise it has expired, was deleted or has been read as often as allowed.';

/**
 * Counts an attempt under each limit before it is made, and gives it back unless the outcome is null. So any number of
 * simultaneous attempts stays within the limits.
 */
async function withAttempts<T>(database: Database, limits: readonly Limit[], attempt: () => Promise<T | null>) {
  const taken: Buffer[] = [];
  let isWrong = false;
  try {
    for (const limit of limits) {
      if (!(await takeAttempt(database, SCHEMA, limit))) {
        const { wait } = await readThrottle(database, SCHEMA, [limit]);
        return new Failure('too_many_requests', { retryAfterSeconds: wait });
      }
      taken.push(limit.key);
    }
    const outcome = await attempt();
    isWrong = outcome === null;
    return outcome;
  } finally {
    // If this fails, the attempt counts until its window ends.
    if (!isWrong && taken.length > 0) await giveBackAttempts(database, SCHEMA, taken).catch(() => {});
  }
}

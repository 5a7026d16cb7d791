import { commitmentOf, isUnaltered, KEY_BYTES, type ServerKey, unlock, unseal } from '../crypto/box.ts';
import { stretch } from '../crypto/scrypt.ts';
import { fromBase64url } from '../crypto/text.ts';
import { sameDigest } from '../crypto/token.ts';
import { giveBackAttempts, type Limit, readThrottle, takeAttempt, throttleKey } from '../db/throttle.ts';
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
export type DecryptRequest = Infer<typeof decryptRequestShape>;
export const openedShape = object({ password: text() });
export const OPEN_ERRORS = ['not_found', 'passphrase_needed', 'wrong_passphrase', 'too_many_requests', 'key_unknown',
  'secret_damaged', 'unavailable'] as const;

export const decrypt = (call: Call<null, unknown, { id: string }, DecryptRequest>, service: SecretsService) =>
  openSecret(service, call.request, call.query.id, call.body);

/** How many attempts may fail. Nobody can block a secret by its id: only the holder of the key can try a passphrase. */
const LIMITS = {
  link: { attempts: 60, seconds: 600 }, // share links of any secret, from one network
  network: { attempts: 5, seconds: 900 }, // passphrases of one secret, from one network
  secret: { attempts: 30, seconds: 86_400 }, // passphrases of one secret, from everywhere
} as const;

export const limitOf = (serverKey: ServerKey, name: keyof typeof LIMITS, ...parts: readonly string[]): Limit =>
  ({ ...LIMITS[name], mode: 'window', key: throttleKey(serverKey.throttleKey, [name, ...parts]) });

/**
 * The order matters. The text is decrypted in memory first, then one statement uses up the read and updates the
 * receipt, and the text is returned only after that commit. So a damaged row uses nothing up, a read that cannot be
 * recorded does not happen, and a crash may lose a read but never returns one twice.
 */
export async function openSecret(service: SecretsService, request: RequestInfo, id: string, body: DecryptRequest) {
  const { database, openingKeys } = service;
  const failedRead = async <Code extends ErrorCode>(reason: string, failure: Failure<Code>) => {
    recordEvent(service, 'read failed', { id, key_id: await countFailedRead(database, id) }, request, reason);
    return failure;
  };
  const notFound = (reason: string, message = NOT_FOUND) => failedRead(reason, new Failure('not_found', { message }));
  const clientKey = fromBase64url(body.secret);
  if (clientKey?.length !== KEY_BYTES) return notFound('malformed key', MALFORMED);
  const row = await findSecret(database, id);
  if (!row) return notFound(ENDED);
  const serverFailure = <Code extends ErrorCode>(code: Code, message: string) => {
    service.log.error(message, { secret_id: id, key_id: row.key_id });
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
  let content = unseal(serverKey, clientKey, metadata, row);
  if (!content) return serverFailure('secret_damaged', ALTERED);
  if (!Buffer.isBuffer(content)) {
    const locked = content;
    const { passphrase } = body;
    if (passphrase === undefined) return new Failure('passphrase_needed');
    // By the key of the row: during a rotation, replicas with different current keys share the counts.
    const limits = [limitOf(serverKey, 'network', id, request.network), limitOf(serverKey, 'secret', id)];
    const unlocked = await tryPassphrase(service, id, limits, async () => {
      const stretched = await service.hashing.run(() => stretch(passphrase, locked.kdfParams));
      return unlock(serverKey, clientKey, metadata, locked, stretched);
    });
    if (unlocked instanceof Failure) return unlocked;
    if (!unlocked) return failedRead('wrong passphrase', new Failure('wrong_passphrase'));
    content = unlocked;
  }
  if (!(await useUpRead(database, { id, commitment: row.commitment }))) return notFound('another reader was first');
  recordEvent(service, 'read', { id, key_id: row.key_id }, request);
  return { data: { password: content.toString('utf8') } };
}

const ENDED = 'unknown or ended';
const ALTERED = 'a stored secret has been altered: swapped, truncated or edited';
const MALFORMED = 'This is not a key. A key has 43 characters of A-Z a-z 0-9 - _. Copy all of it again.';
/** The same for an unknown id, a wrong key, and an expired, deleted or used-up secret. */
const NOT_FOUND =
  'No secret opens with this id and key. Check both for typing mistakes; ' +
  'otherwise it has expired, was deleted or has been read as often as allowed.';

/**
 * Counts an attempt under each limit before it is made, and gives it back unless the passphrase was wrong. So any
 * number of simultaneous attempts stays within the limits. One at a time for each secret, so that correct passphrases
 * sent together do not use up each other's attempts.
 */
function tryPassphrase(
  { database, passphraseQueue }: SecretsService, id: string, limits: Limit[], attempt: () => Promise<Buffer | null>,
) {
  return passphraseQueue(id, async () => {
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
      const plaintext = await attempt();
      isWrong = plaintext === null;
      return plaintext;
    } finally {
      // If this fails, the attempt counts until its window ends.
      if (!isWrong && taken.length > 0) await giveBackAttempts(database, SCHEMA, taken).catch(() => {});
    }
  });
}

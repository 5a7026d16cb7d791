import { commitmentOf, deriveKeys, isUnaltered, KEY_BYTES, unseal } from '../crypto/box.ts';
import { fromBase64url } from '../crypto/text.ts';
import { sameDigest } from '../crypto/token.ts';
import type { Call, RequestInfo } from '../http/call.ts';
import { type ErrorCode, Failure } from '../http/errors.ts';
import { type Infer, object, text } from '../http/shape.ts';
import { passphraseShape } from './encrypt.ts';
import type { Caller } from './caller.ts';
import { KEY_MISSING, recordEvent, type SecretsService } from './service.ts';
import { countFailedRead, findSecret, useUpRead } from './store.ts';

export const clientKey = text({
  min: 1,
  max: 256,
  description: 'The encryption key that encrypt returned',
});
export const decryptRequestShape = object({
  secret: clientKey,
  passphrase: passphraseShape('If the secret is locked with one'),
});
export type DecryptRequest = Infer<typeof decryptRequestShape>;
export const openedShape = object({ password: text() });
export const OPEN_ERRORS = [
  'not_found',
  'passphrase_needed',
  'wrong_passphrase',
  'too_many_requests',
  'key_unknown',
  'secret_damaged',
  'unavailable',
] as const;

export const decrypt = (
  call: Call<Caller, unknown, { id: string }, DecryptRequest>,
  service: SecretsService,
) => openSecret(service, call.request, call.query.id, call.body);

/**
 * The order matters. The text is decrypted in memory first, then one statement uses up the read and updates the
 * receipt, and the text is returned only after that commit. So a damaged row uses nothing up, a read that cannot be
 * recorded does not happen, and a crash may lose a read but never returns one twice.
 */
export async function openSecret(
  service: SecretsService,
  request: RequestInfo,
  id: string,
  body: DecryptRequest,
) {
  const { database, openingKeys } = service;
  const failedRead = async <Code extends ErrorCode>(reason: string, failure: Failure<Code>) => {
    recordEvent(
      service,
      'read failed',
      { id, key_id: await countFailedRead(database, id) },
      request,
      reason,
    );
    return failure;
  };
  const notFound = (reason: string, message = NOT_FOUND) =>
    failedRead(reason, new Failure('not_found', { message }));
  const clientKey = fromBase64url(body.secret);
  if (clientKey?.length !== KEY_BYTES) return notFound('malformed key', MALFORMED);
  const row = await findSecret(database, id);
  if (!row) return notFound(ENDED);
  const serverFailure = <Code extends ErrorCode>(code: Code, message: string) => {
    service.log.error(message, { secret_id: id, key_id: row.key_id });
    return new Failure(code);
  };
  const serverKey = openingKeys.find((key) => key.id === row.key_id);
  if (
    !serverKey &&
    !openingKeys.some((key) => sameDigest(row.commitment, commitmentOf(key, clientKey, id)))
  ) {
    return row.expired ? notFound(ENDED) : serverFailure('key_unknown', KEY_MISSING);
  }
  const metadata = { id, expiresAt: row.expires_at?.getTime() ?? null, maxReads: row.max_reads };
  // A key fits, but no key has the row's key id: the key id was edited.
  if (!serverKey || !isUnaltered(serverKey, metadata, row, row.tag))
    return serverFailure('secret_damaged', ALTERED);
  if (row.expired) return notFound(ENDED);
  const keys = deriveKeys(serverKey, clientKey, id);
  if (!sameDigest(row.commitment, keys.commitment)) return notFound('wrong key');
  let content = unseal(serverKey, clientKey, metadata, row, keys);
  if (!content) return serverFailure('secret_damaged', ALTERED);
  if (!Buffer.isBuffer(content)) {
    const { passphrase } = body;
    if (passphrase === undefined) return new Failure('passphrase_needed');
    const { tryPassphrase } = await import('./passphrase.ts'); // loaded with the first one
    const secret = { serverKey, clientKey, metadata, locked: content };
    const unlocked = await tryPassphrase(service, secret, passphrase, request.network);
    if (unlocked instanceof Failure) return unlocked;
    if (!unlocked) return failedRead('wrong passphrase', new Failure('wrong_passphrase'));
    content = unlocked;
  }
  if (!(await useUpRead(database, { id, commitment: row.commitment })))
    return notFound('another reader was first');
  recordEvent(service, 'read', { id, key_id: row.key_id }, request);
  return { data: { password: content.toString('utf8') } };
}

const ENDED = 'unknown or ended';
const ALTERED = 'a stored secret has been altered: swapped, truncated or edited';
const MALFORMED =
  'This is not a key. A key has 43 characters of A-Z a-z 0-9 - _. Copy all of it again.';
/** The same for an unknown id, a wrong key, and an expired, deleted or used-up secret. */
const NOT_FOUND =
  'No secret can be opened with this id and key. Check both for typing mistakes; ' +
  'otherwise it has expired, was deleted or has been read as often as allowed.';

import { stretch } from '../platform/crypto/scrypt.ts';
import { deriveKeys, KEY_BYTES } from '../platform/crypto/seal.ts';
import { fromBase64url } from '../platform/crypto/text.ts';
import { equalDigests } from '../platform/crypto/token.ts';
import { giveBackAttempts, takeAttempt } from '../platform/db/throttle.ts';
import { Failure, type RequestInfo } from '../platform/http/route/route.ts';
import { type Infer, object, text } from '../platform/http/route/schema.ts';
import { isUnaltered, type LockedText, openEnvelope, type ServerKey } from './envelope.ts';
import { passphraseSchema } from './manage-secrets.ts';
import { SCHEMA } from './migrations.ts';
import { limitOf, recordEvent, type SecretsService, serverFailure } from './service.ts';
import { countFailedRead, findSecret, type StoredSecret, useUpRead } from './store/secrets.ts';

export const clientKeySchema = text({
  min: 1,
  max: 256,
  description: 'The encryption key that encrypt returned',
});
export const decryptRequestSchema = object({
  secret: clientKeySchema,
  passphrase: passphraseSchema('If the secret is locked with one'),
});
export type DecryptRequest = Infer<typeof decryptRequestSchema>;
export const READ_ERRORS = [
  'not_found',
  'passphrase_needed',
  'wrong_passphrase',
  'too_many_requests',
  'key_unknown',
  'secret_damaged',
  'unavailable',
] as const;

const ENDED = 'unknown or ended';
/** The same for an unknown id, a wrong key, and an expired, deleted or used-up secret. */
const NOT_FOUND = new Failure('not_found', {
  message:
    'No secret can be opened with this id and key. Check both for typing mistakes; ' +
    'otherwise it has expired, was deleted or has been read as often as allowed.',
});
const MALFORMED = new Failure('not_found', {
  message: 'This is not a key. A key has 43 characters of A-Z a-z 0-9 - _. Copy all of it again.',
});

const TOO_LATE = new Failure('unavailable', {
  message: 'The request took too long. No read was used. Try again soon.',
});

/**
 * What a row holds for a client key. An altered row is reported before its expiry is believed, and
 * its expiry before a wrong key.
 */
export function judge(
  row: StoredSecret & Readonly<{ expired: boolean }>,
  keys: readonly ServerKey[],
  clientKey: Buffer,
) {
  const { id, key_id, commitment, expired } = row;
  const serverKey = keys.find((key) => key.id === key_id);
  if (!serverKey) {
    const isKeyIdEdited = keys.some((key) =>
      equalDigests(commitment, deriveKeys(key, clientKey, id).commitment),
    );
    if (isKeyIdEdited) return { kind: 'altered' } as const;
    return { kind: expired ? 'ended' : 'key unknown' } as const;
  }
  if (!isUnaltered(serverKey, row)) return { kind: 'altered' } as const;
  return expired ? ({ kind: 'ended' } as const) : openEnvelope(serverKey, clientKey, row);
}

/**
 * The order matters:
 * 1. The text is decrypted in memory: a damaged row or a wrong passphrase costs no read.
 * 2. One statement uses up the read and updates the receipt: a read that cannot be recorded does
 *    not happen, nor one whose reader has left or would get no reply in time.
 * 3. The text is returned only after that commit: a crash may lose a read but never returns one
 *    twice.
 */
export async function readSecret(
  service: SecretsService,
  request: RequestInfo,
  id: string,
  { secret, passphrase }: DecryptRequest,
) {
  const { database, openingKeys } = service;
  /** Counted in the receipt, and logged with its reason. */
  const failedRead = async (
    reason: string,
    failure: Failure<'not_found' | 'wrong_passphrase'> = NOT_FOUND,
  ) => {
    const key_id = await countFailedRead(database, id);
    recordEvent(service, 'read failed', { id, key_id }, request, reason);
    return failure;
  };
  const clientKey = fromBase64url(secret);
  if (clientKey?.length !== KEY_BYTES) return failedRead('malformed key', MALFORMED);
  const row = await findSecret(database, id);
  if (!row) return failedRead(ENDED);
  // The end of the request, by the database's clock.
  const until = new Date(row.found_at.getTime() + request.endsAt - performance.now());
  const judged = judge(row, openingKeys, clientKey);
  switch (judged.kind) {
    case 'altered':
      return serverFailure(service, 'secret_damaged', row);
    case 'key unknown':
      return serverFailure(service, 'key_unknown', row);
    case 'ended':
      return failedRead(ENDED);
    case 'wrong key':
      return failedRead('wrong key');
    case 'text':
    case 'locked':
  }
  const plaintext =
    judged.kind === 'text' ? judged.text : await unlock(service, request, id, judged, passphrase);
  if (plaintext instanceof Failure)
    return plaintext.code === 'wrong_passphrase'
      ? failedRead('wrong passphrase', plaintext)
      : plaintext;
  // The statement that uses up a read gets as much time as everything before it.
  const { gone, startedAt, endsAt } = request;
  const isLate = () => gone.aborted || performance.now() > (startedAt + endsAt) / 2;
  const used = await useUpRead(database, { id, commitment: row.commitment, isLate, until });
  if (!used) return isLate() ? TOO_LATE : failedRead(ENDED);
  recordEvent(service, 'read', row, request);
  return { data: { password: plaintext.toString('utf8') }, used };
}

/**
 * Counts an attempt under each limit before it is made, and gives it back unless the passphrase was
 * wrong. So any number of simultaneous attempts stays within the limits.
 */
async function unlock(
  { database, hashing, tryInTurn }: SecretsService,
  { network }: RequestInfo,
  id: string,
  { serverKey, kdfParams, open }: LockedText,
  passphrase: string | undefined,
) {
  if (passphrase === undefined) return new Failure('passphrase_needed');
  // By the key of the row: during a rotation, replicas with different current keys share the
  // counts.
  const limits = [limitOf(serverKey, 'network', id, network), limitOf(serverKey, 'secret', id)];
  return tryInTurn(id, async () => {
    const taken: Buffer[] = [];
    let isWrong = false;
    try {
      for (const limit of limits) {
        const wait = await takeAttempt(database, SCHEMA.name, limit);
        if (wait > 0) return new Failure('too_many_requests', { retryAfterSeconds: wait });
        taken.push(limit.key);
      }
      const plaintext = open(await hashing.run(() => stretch(passphrase, kdfParams)));
      isWrong = plaintext === null;
      return plaintext ?? new Failure('wrong_passphrase');
    } finally {
      // Awaited: the next attempt must find it. If it fails, this one counts until its window ends.
      if (!isWrong && taken.length > 0)
        await giveBackAttempts(database, SCHEMA.name, taken).catch(() => {});
    }
  });
}

import { randomUUID } from 'node:crypto';
import { createKdfParams, stretch } from '../platform/crypto/scrypt.ts';
import { createClientKey } from '../platform/crypto/seal.ts';
import { type Call, Failure, type RequestInfo } from '../platform/http/route/route.ts';
import {
  type Infer,
  integer,
  object,
  oneOf,
  optional,
  text,
  uuid,
  withoutNul,
} from '../platform/http/route/schema.ts';
import { capabilityOf, type Lock, sealText } from './envelope.ts';
import type { Caller } from './guard.ts';
import { countAttempt, recordEvent, type SecretsService } from './service.ts';
import type { Limits } from './settings.ts';
import { withdrawRequest } from './store/requests.ts';
import { deleteSecret, insertSecret, timeIn } from './store/secrets.ts';

/** Shorter ones could be guessed even within the limits of the throttle. */
export const MIN_PASSPHRASE = 4;

export const passphraseSchema = (description: string) =>
  optional(
    text({
      min: MIN_PASSPHRASE,
      max: 1_024,
      pattern: withoutNul,
      description,
    }),
  );

export const passwordSchema = ({ password: { max_bytes } }: Limits) =>
  text({
    min: 1,
    description: `The secret text: 1 to ${max_bytes} bytes of UTF-8, returned unchanged`,
    check: (value) =>
      Buffer.byteLength(value) > max_bytes ? `must have at most ${max_bytes} bytes in UTF-8` : null,
  });
export const lifetimeMembers = ({ expires_in, max_reads }: Limits) => ({
  expires_in: optional(
    integer({ min: 1, max: expires_in.max, description: 'Seconds until it expires' }),
  ),
  max_reads: optional(
    integer({ min: 1, max: max_reads.max, description: 'How often it can be read' }),
  ),
});

/**
 * Unknown members are rejected: a misspelled `max_reads` would leave the secret readable until it
 * expires.
 */
export const encryptRequestSchema = (limits: Limits) =>
  object(
    {
      password: passwordSchema(limits),
      ...lifetimeMembers(limits),
      passphrase: passphraseSchema(
        'Required in addition to the key; send it to the reader over another channel',
      ),
    },
    'rejected',
  );
type EncryptCall = Call<Caller, unknown, unknown, Infer<ReturnType<typeof encryptRequestSchema>>>;

/** Encrypts a text under the server's key and a new client key, which this reply alone contains. */
export async function encrypt({ body, caller, request }: EncryptCall, service: SecretsService) {
  const { database, limits, serverKey, sharePages } = service;
  const {
    passphrase,
    max_reads = limits.max_reads.default,
    expires_in = limits.expires_in.default,
  } = body;
  // Before the time is read, because the hash may wait for a slot.
  const lock = passphrase === undefined ? null : await createLock(passphrase, service);
  const expires_at = expires_in === null ? null : await timeIn(database, expires_in);

  const clientKey = createClientKey();
  const terms = {
    id: randomUUID(),
    expires_at,
    max_reads,
    creator: caller.creator,
  };
  const row = sealText(serverKey, clientKey, terms, Buffer.from(body.password), lock);
  await insertSecret(database, row);
  recordEvent(service, 'stored', row, request);
  const { id } = row;
  const secret = clientKey.toString('base64url');
  const receipt = sharePages ? capabilityOf(serverKey, 'receipt', id) : undefined;
  return {
    data: {
      id,
      secret,
      expires_at,
      receipt,
    },
  };
}

/**
 * What is stored without a credential is limited. An invalid body counts too: without a limit, it
 * would cost as much as a valid one.
 */
export const limitVisitor = async (
  { role }: Caller,
  { network }: RequestInfo,
  service: SecretsService,
) => (role === 'anyone' ? countAttempt(service, 'anyone', network) : null);

async function createLock(
  passphrase: string,
  { hashing, passphraseCost }: SecretsService,
): Promise<Lock> {
  const kdfParams = createKdfParams(passphraseCost);
  return {
    kdfParams,
    stretched: await hashing.run(() => stretch(passphrase, kdfParams)),
  };
}

export const idMember = { id: uuid('The id that encrypt returned') };
export const deletedSchema = object({ id: uuid(), status: oneOf('deleted', 'withdrawn') });

const NOT_DELETED =
  'Nothing to delete: the secret does not exist, was already read, or has expired. See its receipt.';

/**
 * Withdraws the request with this id if it is open, and otherwise deletes the secret. Of a deletion
 * and a simultaneous last read, exactly one succeeds.
 * @param creator as of `deleteSecret`
 */
export async function deleteAndReport(
  service: SecretsService,
  id: string,
  creator: string | null,
  request: RequestInfo,
) {
  if (await withdrawRequest(service.database, id, creator)) {
    recordEvent(service, 'request withdrawn', { id, key_id: null }, request);
    return { data: { id, status: 'withdrawn' } } as const;
  }
  const deleted = await deleteSecret(service.database, id, creator);
  if (!deleted) return new Failure('not_found', { message: NOT_DELETED });
  if (deleted.is_new) recordEvent(service, 'deleted', deleted, request);
  return { data: { id, status: 'deleted' } } as const;
}

import { randomUUID } from 'node:crypto';
import { createClientKey, rowTagOf, seal, sealLocked } from '../crypto/box.ts';
import { createKdfParams, stretch } from '../crypto/password.ts';
import type { Call } from '../http/call.ts';
import {
  boolean, dateTime, type Infer, integer, nullable, object, optional, text, uuid, withoutNul,
} from '../http/shape.ts';
import { type Limits, recordEvent, type SecretsService } from './service.ts';
import { currentTime, insertSecret } from './store.ts';

const MAX_PASSWORD_BYTES = 32 * 1024;
/** Shorter ones could be guessed even within the limits of the throttle. */
const MIN_PASSPHRASE = 4;

const password = text({
  min: 1,
  description: `The secret text: 1 to ${MAX_PASSWORD_BYTES} bytes of UTF-8, returned unchanged`,
  check: (value) =>
    Buffer.byteLength(value) > MAX_PASSWORD_BYTES ? `must have at most ${MAX_PASSWORD_BYTES} bytes in UTF-8` : null,
});

export const passphraseShape = (description: string) =>
  optional(text({ min: MIN_PASSPHRASE, max: 1_024, check: withoutNul, description }));

/** Unknown members are rejected: a misspelled `max_reads` would leave the secret readable until it expires. */
export const encryptRequestShape = ({ expires_in, max_reads }: Limits) =>
  object(
    {
      password,
      expires_in: optional(integer({ min: 1, max: expires_in.max, description: 'Seconds until it expires' })),
      max_reads: optional(integer({ min: 1, max: max_reads.max, description: 'How often it can be read' })),
      passphrase: passphraseShape('Required in addition to the key; send it to the reader over another channel'),
    },
    'refused',
  );
type EncryptRequest = Infer<ReturnType<typeof encryptRequestShape>>;

export const encryptReplyShape = object({
  id: uuid(),
  secret: text({ description: 'The encryption key, returned only once' }),
  expires_at: nullable(dateTime()),
});

/** Encrypts a text under the server's key and a new client key, which this reply alone contains. */
export async function encrypt(call: Call<null, unknown, unknown, EncryptRequest>, service: SecretsService) {
  const { body, request } = call;
  const { database, hashing, limits, passphraseCost, serverKey } = service;
  const { passphrase } = body;
  const kdfParams = passphrase === undefined ? '' : createKdfParams(passphraseCost);
  // Before the time is read, because the hash may wait for a slot.
  const stretched = passphrase === undefined ? null : await hashing.run(() => stretch(passphrase, kdfParams), true);
  const seconds = body.expires_in ?? limits.expires_in.default;
  const expires_at = seconds === null ? null : new Date((await currentTime(database, null)).getTime() + seconds * 1000);
  const max_reads = body.max_reads ?? limits.max_reads.default;
  const [id, key_id] = [randomUUID(), serverKey.id];
  const metadata = { id, expiresAt: expires_at?.getTime() ?? null, maxReads: max_reads };
  const clientKey = createClientKey();
  const plaintext = Buffer.from(body.password, 'utf8');
  const sealed = stretched
    ? sealLocked(serverKey, clientKey, metadata, plaintext, kdfParams, stretched)
    : seal(serverKey, clientKey, metadata, plaintext);
  const tag = rowTagOf(serverKey, metadata, sealed);
  await insertSecret(database, { id, key_id, ...sealed, tag, expires_at, max_reads });
  recordEvent(service, 'stored', { id, key_id }, request);
  return { data: { id, secret: clientKey.toString('base64url'), expires_at: expires_at?.toISOString() ?? null } };
}

const count = integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
const limit = object({ default: nullable(count), max: count });
export const optionsShape = object({
  expires_in: limit, max_reads: limit, share_pages: boolean(),
  passphrase: object({ min_length: count }), password: object({ max_bytes: count }),
});

/** The limits and defaults of this server, for clients that offer a form. */
export async function options(_call: unknown, { limits, sharePages }: SecretsService) {
  const [passphrase, password] = [{ min_length: MIN_PASSPHRASE }, { max_bytes: MAX_PASSWORD_BYTES }];
  return { data: { ...limits, passphrase, password, share_pages: sharePages } };
}

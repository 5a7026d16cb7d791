import { randomUUID } from 'node:crypto';
import { capabilityOf, createClientKey, rowTagOf, seal, sealLocked } from '../crypto/box.ts';
import { createKdfParams, stretch } from '../crypto/scrypt.ts';
import type { Call } from '../http/call.ts';
import {
  boolean,
  type Infer,
  integer,
  nullable,
  object,
  oneOf,
  optional,
  text,
  withoutNul,
} from '../http/shape.ts';
import type { Caller } from './caller.ts';
import { type Limits, recordEvent, type SecretsService } from './service.ts';
import { currentTime, insertSecret } from './store.ts';

/** Shorter ones could be guessed even within the limits of the throttle. */
const MIN_PASSPHRASE = 4;

const password = (max: number) =>
  text({
    min: 1,
    description: `The secret text: 1 to ${max} bytes of UTF-8, returned unchanged`,
    check: (value) =>
      Buffer.byteLength(value) > max ? `must have at most ${max} bytes in UTF-8` : null,
  });

export const passphraseShape = (description: string) =>
  optional(text({ min: MIN_PASSPHRASE, max: 1_024, check: withoutNul, description }));

/** Unknown members are rejected: a misspelled `max_reads` would leave the secret readable until it expires. */
export const encryptRequestShape = ({ expires_in, max_reads, password: { max_bytes } }: Limits) =>
  object(
    {
      password: password(max_bytes),
      expires_in: optional(
        integer({ min: 1, max: expires_in.max, description: 'Seconds until it expires' }),
      ),
      max_reads: optional(
        integer({ min: 1, max: max_reads.max, description: 'How often it can be read' }),
      ),
      passphrase: passphraseShape(
        'Required in addition to the key; send it to the reader over another channel',
      ),
    },
    'rejected',
  );
type EncryptCall = Call<Caller, unknown, unknown, Infer<ReturnType<typeof encryptRequestShape>>>;

/** Encrypts a text under the server's key and a new client key, which this reply alone contains. */
export async function encrypt({ body, caller, request }: EncryptCall, service: SecretsService) {
  const { database, hashing, limits, passphraseCost, serverKey, sharePages } = service;
  const refused =
    caller.role === 'anyone' && (await (await import('./visitor.ts')).takeTurn(service, request));
  if (refused) return refused;
  const {
    passphrase,
    max_reads = limits.max_reads.default,
    expires_in = limits.expires_in.default,
  } = body;
  const kdfParams = createKdfParams(passphraseCost);
  // Before the time is read, because the hash may wait for a slot.
  const stretched =
    passphrase === undefined ? null : await hashing.run(() => stretch(passphrase, kdfParams));
  const ends =
    expires_in === null ? null : (await currentTime(database, null)).getTime() + expires_in * 1000;
  const expires_at = ends === null ? null : new Date(ends);
  const [id, key_id, clientKey] = [randomUUID(), serverKey.id, createClientKey()];
  const metadata = { id, expiresAt: ends, maxReads: max_reads };
  const plaintext = Buffer.from(body.password, 'utf8');
  const sealed = stretched
    ? sealLocked(serverKey, clientKey, metadata, plaintext, kdfParams, stretched)
    : seal(serverKey, clientKey, metadata, plaintext);
  const tag = rowTagOf(serverKey, metadata, sealed);
  await insertSecret(database, {
    id,
    key_id,
    tag,
    expires_at,
    max_reads,
    creator: caller.creator,
    ...sealed,
  });
  recordEvent(service, 'stored', { id, key_id }, request);
  const receipt = sharePages
    ? capabilityOf(serverKey, 'receipt', id).toString('base64url')
    : undefined;
  return { data: { id, secret: clientKey.toString('base64url'), expires_at, receipt } };
}

const count = integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
const limit = object({ default: nullable(count), max: count });
export const optionsShape = object({
  expires_in: limit,
  max_reads: limit,
  share_pages: boolean(),
  passphrase: object({ min_length: count }),
  password: object({ max_bytes: count }),
  caller: object({ role: oneOf('anyone', 'sender', 'operator'), user: nullable(text()) }),
});

/** The limits and defaults of this server, for clients that offer a form. */
export async function options(
  { caller }: Call<Caller, unknown, unknown, null>,
  service: SecretsService,
) {
  const user = /^user:(.*)$/.exec(caller.creator ?? '')?.[1] ?? null;
  const [passphrase, who] = [{ min_length: MIN_PASSPHRASE }, { role: caller.role, user }];
  return { data: { ...service.limits, passphrase, share_pages: service.sharePages, caller: who } };
}

import { boolean, dateTime, integer, list, nullable, object, optional, text, uuid, withoutNul, oneOf } from '../http/shape.ts';
import type { Limits } from './service.ts';

export const PASSWORD_BYTES = 32 * 1024;
/** Short ones would be guessed even within the throttle's limits. */
export const MIN_PASSPHRASE = 4;

const password = text({
  min: 1,
  description: `The secret text: 1 byte to ${PASSWORD_BYTES} bytes in UTF-8, given back exactly as it came`,
  check: (value) => (Buffer.byteLength(value) > PASSWORD_BYTES ? `must have at most ${PASSWORD_BYTES} bytes in UTF-8` : null),
});

const passphrase = { min: MIN_PASSPHRASE, max: 1_024, check: withoutNul };

/** A misspelt max_reads would leave a secret readable for ever: what is not known is refused. */
export const encryptRequestShape = ({ maxSeconds, maxReads }: Limits) =>
  object(
    {
      password,
      expires_in: optional(integer({ min: 1, max: maxSeconds, description: 'Seconds from now' })),
      max_reads: optional(integer({ min: 1, max: maxReads, description: 'How often it may be read' })),
      passphrase: optional(text({ ...passphrase, description: 'Needed besides the key to open it, and to be passed on another way' })),
    },
    'refused',
  );
export const encryptReplyShape = object({ id: uuid(), secret: text({ description: 'The encryption key, given out this one time' }), expires_at: nullable(dateTime()) });
export const decryptRequestShape = object({
  secret: text({ min: 1, max: 256, description: 'The encryption key that encrypt returned' }),
  passphrase: optional(text({ ...passphrase, description: 'If the secret is locked with one' })),
});
export const secretShape = object({ id: uuid(), secret: text({ description: 'The encrypted secret' }) });
export const listShape = list(secretShape);

const count = integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
export const receiptShape = object({
  id: uuid(),
  status: oneOf('stored', 'read', 'expired', 'deleted'),
  created_at: dateTime(),
  expires_at: nullable(dateTime()),
  max_reads: nullable(count),
  reads: count,
  last_read_at: nullable(dateTime()),
  failed_reads: count,
});
export const deletionShape = object({ id: uuid(), status: oneOf('deleted') });
export const optionsShape = object({
  expires_in: object({ default: nullable(count), max: count }),
  max_reads: object({ default: nullable(count), max: count }),
  passphrase: object({ min_length: count }),
  password: object({ max_bytes: count }),
  share_pages: boolean(),
});

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';

/** @returns 256 random bits as 43 characters of Base64url; ASVS 11.5.1 requires 128 */
export const randomToken = (): string => randomBytes(32).toString('base64url');

/**
 * Stored in place of a token. SHA-256 suffices for values of at least 112 random bits (ASVS 6.5.2).
 */
export const sha256 = (data: string | Buffer): Buffer => createHash('sha256').update(data).digest();
/** In hexadecimal. A third faster than by way of a buffer. */
export const sha256Hex = (data: string | Buffer): string =>
  createHash('sha256').update(data).digest('hex');

/** In constant time. Compare digests, because their lengths are equal. */
export const equalDigests = (one: Buffer, other: Buffer) =>
  one.length === other.length && timingSafeEqual(one, other);

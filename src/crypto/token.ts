import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';

/** @returns 256 random bits as 43 characters of Base64url: more than the 128 that ASVS 11.5.1 asks for */
export const randomToken = (): string => randomBytes(32).toString('base64url');

/**
 * What is stored in place of a token. A plain SHA-256 suffices for values of 112 random bits and more (ASVS 6.5.2):
 * there is nothing to guess, so there is nothing to slow down.
 */
export const digest = (token: string): Buffer => createHash('sha256').update(token, 'utf8').digest();

/** Constant time whatever the lengths: digests are compared, because `timingSafeEqual` throws on unequal lengths. */
export const sameDigest = (one: Buffer, other: Buffer): boolean => one.length === other.length && timingSafeEqual(one, other);

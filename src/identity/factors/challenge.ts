import { createHmac, randomBytes } from 'node:crypto';
import { sameDigest } from '../../crypto/token.ts';

/** What a challenge was made for. One for another purpose is not accepted (CVE-2026-37982 in Keycloak). */
export type Purpose = 'sign in' | 'second factor' | 'register';

const [RANDOM_BYTES, TIME_BYTES, LIFETIME_SECONDS] = [16, 4, 300];

/**
 * A random challenge that needs no row: anybody may ask for one. It holds the time of its end, and a MAC over that, its
 * purpose, and the browser's cookie. The caller makes sure that it is used once.
 * @param secret the same for all replicas  @param binding a token that only this browser has  @param now in seconds
 */
export function createChallenge(secret: Buffer, purpose: Purpose, binding: string, now: number): Buffer {
  const head = randomBytes(RANDOM_BYTES + TIME_BYTES);
  head.writeUInt32BE(Math.floor(now) + LIFETIME_SECONDS, RANDOM_BYTES);
  return Buffer.concat([head, macOf(secret, purpose, binding, head)]);
}

export function isChallengeFor(challenge: Buffer, secret: Buffer, purpose: Purpose, binding: string, now: number) {
  const head = challenge.subarray(0, RANDOM_BYTES + TIME_BYTES);
  if (head.length < RANDOM_BYTES + TIME_BYTES || head.readUInt32BE(RANDOM_BYTES) < now) return false;
  return sameDigest(challenge.subarray(head.length), macOf(secret, purpose, binding, head));
}

const macOf = (secret: Buffer, purpose: Purpose, binding: string, head: Buffer): Buffer =>
  createHmac('sha256', secret).update(JSON.stringify(['challenge', purpose, binding])).update(head).digest();

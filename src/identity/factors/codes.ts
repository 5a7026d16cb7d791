import { createHmac, randomInt } from 'node:crypto';
import { deriveServerKey, type ServerKey } from '../../crypto/box.ts';
import { openSecret, sealSecret } from '../../crypto/sealed.ts';
import { digest, sameDigest } from '../../crypto/token.ts';
import { giveBackAttempts, takeAttempt } from '../../db/attempts.ts';
import { type Limit, throttleKey } from '../../db/throttle.ts';
import { Failure } from '../../http/errors.ts';
import { actorOf } from '../audit.ts';
import { SCHEMA } from '../schema.ts';
import type { CheckCode, IdentityService } from '../service.ts';
import {
  countTotpByKey,
  findTotp,
  noteFailure,
  readClock,
  useRecoveryCode,
  useTotpStep,
} from './store.ts';

/** Authenticator apps agree on these values only (RFC 6238 with SHA-1). */
const [STEP_SECONDS, DIGITS, SECRET_BYTES] = [30, 6, 20];

/**
 * The secret of an enrolment, which is stored only with its first right code. @param key IDENTITY_SECRET
 * @param parts the user, a token of this browser, and the account's time of change, which a removal changes
 */
export const enrolmentSecret = (key: string, parts: readonly [string, string, Date]): Buffer =>
  createHmac('sha256', key)
    .update(JSON.stringify(['totp', ...parts]))
    .digest()
    .subarray(0, SECRET_BYTES);

/** The code of one step (RFC 4226, 5.3). */
export function totpCode(secret: Buffer, step: number): string {
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(step));
  const mac = createHmac('sha1', secret).update(counter).digest();
  const number = mac.readUInt32BE(mac.readUInt8(mac.length - 1) & 15) & 0x7fff_ffff;
  return String(number % 10 ** DIGITS).padStart(DIGITS, '0');
}

/** The step of this code. One before and after is accepted, because clocks differ. @param seconds of the database */
export function findTotpStep(secret: Buffer, code: string, seconds: number): number | null {
  const [current, given] = [Math.floor(seconds / STEP_SECONDS), Buffer.from(code)];
  // All three are compared, so that the time does not depend on the step.
  const isCode = (step: number) => sameDigest(Buffer.from(totpCode(secret, step)), given);
  return [current - 1, current, current + 1].filter(isCode).at(-1) ?? null;
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/** Base32 (RFC 4648) without padding, which some apps reject. */
export function base32(bytes: Buffer): string {
  const bits = [...bytes].map((byte) => byte.toString(2).padStart(8, '0')).join('');
  return (bits.match(/.{1,5}/g) ?? [])
    .map((five) => ALPHABET[Number.parseInt(five.padEnd(5, '0'), 2)])
    .join('');
}

/** What the QR code holds. A colon separates issuer and account, and so may be in neither. */
export function totpUri(secret: Buffer, issuer: string, account: string): string {
  const [site, name] = [issuer, account].map((part) =>
    encodeURIComponent(part.replaceAll(':', ' ')),
  );
  return `otpauth://totp/${site}:${name}?secret=${base32(secret)}&issuer=${site}`;
}

/** Letters and digits that are not mistaken for each other (Crockford's Base32). */
const LETTERS = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

/** Ten codes of 120 random bits, so that a plain digest may be stored (ASVS 6.5.2: from 112 bits). */
export const createRecoveryCodes = (): string[] =>
  Array.from({ length: 10 }, () => {
    const letters = Array.from({ length: 24 }, () => LETTERS[randomInt(LETTERS.length)]).join('');
    return letters.replace(/.{4}(?=.)/g, '$&-');
  });

/** Reads what a person copied by hand: case, spaces and hyphens do not matter. @returns null if it is not a code */
export function recoveryDigest(text: string): Buffer | null {
  const letters = text
    .toUpperCase()
    .replace(/[\s-]/g, '')
    .replaceAll('O', '0')
    .replace(/[IL]/g, '1');
  return /^[0-9A-HJKMNP-TV-Z]{24}$/.test(letters) ? digest(letters) : null;
}

/** @param secret IDENTITY_SECRET, or one of IDENTITY_SECRET_PREVIOUS */
export const createTotpKey = (secret: string): ServerKey =>
  deriveServerKey(secret, 'gatehouse/identity/v1/');

const KEY_MISSING = new Failure('key_unknown', {
  message:
    'Codes of apps cannot be checked now. Use a recovery code or a passkey, or contact the operator.',
});

const UNKNOWN =
  'a value of IDENTITY_SECRET is missing: add the one with this key id to IDENTITY_SECRET_PREVIOUS';
const ALTERED = 'the sealed key of an authenticator app was altered';
const EARLIER =
  'keys of authenticator apps are sealed under IDENTITY_SECRET_PREVIOUS until the next use of the app';

/** What the operator must know before an earlier secret is removed. */
export async function reportKeys({ database, log, portal }: IdentityService): Promise<void> {
  const [current, ...previous] = (portal?.secrets ?? []).map((secret) => createTotpKey(secret).id);
  for (const { key_id, apps } of await countTotpByKey(database)) {
    if (previous.includes(key_id)) log.info(EARLIER, { key_id, apps });
    else if (key_id !== current) log.error(UNKNOWN, { key_id, apps });
  }
}

/** All typed codes of an account, from everywhere. Passkeys do not count: their owner can always log in. */
export const codeLimit = (secret: Buffer, userId: string): Limit => ({
  key: throttleKey(secret, ['code', userId]),
  mode: 'window',
  attempts: 20,
  seconds: 86_400,
});

/** A code is counted before it is checked, and accepted once. @param secrets IDENTITY_SECRET, then the earlier ones */
export function createCodeCheck(secrets: readonly string[]): CheckCode {
  const keys = secrets.map(createTotpKey);
  return async (service, request, { id }, text) => {
    const { database, throttleSecret, reportFactor } = service;
    const code = text.replace(/\s/g, '');
    const [recovery, actor] = [recoveryDigest(code), actorOf(null, request)];
    const factor = recovery ? 'recovery' : 'totp';
    const limit = codeLimit(await throttleSecret(), id);
    const isLeft = await takeAttempt(database, SCHEMA.name, limit);
    const isRight =
      isLeft &&
      (recovery
        ? await useRecoveryCode(database, actor, id, recovery)
        : await checkTotp(service, keys, id, code));
    if (isRight) await giveBackAttempts(database, SCHEMA.name, [limit.key]);
    // The strongest sign that an attacker knows the password.
    else if (isLeft) await noteFailure(database, actor, id);
    if (isRight instanceof Failure) return isRight;
    reportFactor(factor, isRight ? 'right' : isLeft ? 'wrong' : 'throttled', id);
    if (!isLeft) return new Failure('too_many_requests', { retryAfterSeconds: 3_600 });
    return isRight ? `password, ${factor}` : new Failure('invalid_code');
  };
}

async function checkTotp(
  { database, log }: IdentityService,
  keys: readonly ServerKey[],
  userId: string,
  code: string,
) {
  const totp = await findTotp(database, userId);
  if (!totp) return false;
  const secret = openSecret(keys, totp);
  if (secret === null) {
    const isKnown = keys.some(({ id }) => id === totp.key_id);
    log.error(isKnown ? ALTERED : UNKNOWN, { key_id: totp.key_id, user_id: userId });
    return KEY_MISSING;
  }
  const step = findTotpStep(Buffer.from(secret, 'base64'), code, await readClock(database));
  if (step === null) return false;
  const [current] = keys;
  const sealed = current && current.id !== totp.key_id ? sealSecret(current, secret, userId) : totp;
  return useTotpStep(database, step, totp, sealed);
}

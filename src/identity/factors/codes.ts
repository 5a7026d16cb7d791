import { createHmac, randomBytes } from 'node:crypto';
import { deriveServerKey } from '../../platform/crypto/seal.ts';
import {
  sealSecret,
  staleKeys,
  unsealServiceSecret,
} from '../../platform/crypto/service-secret.ts';
import { sha256, equalDigests } from '../../platform/crypto/token.ts';
import {
  giveBackAttempts,
  type Limit,
  takeAttempt,
  throttleKey,
} from '../../platform/db/throttle.ts';
import { Failure } from '../../platform/http/route/errors.ts';
import { DAY_SECONDS } from '../../platform/runtime/duration.ts';
import { SCHEMA } from '../migrations.ts';
import { typedCode } from '../names.ts';
import type { CheckCode, IdentityService } from '../service.ts';
import { actorOf, auditEvent } from '../store/audit.ts';
import {
  countTotpByKey,
  findTotp,
  readClock,
  consumeRecoveryCode,
  consumeTotpStep,
} from '../store/signin/factors.ts';

/** Authenticator apps agree on these values only (RFC 6238 with SHA-1). */
const STEP_SECONDS = 30;
const DIGITS = 6;

/** The code of one step (RFC 4226, 5.3). */
export function totpCode(secret: Buffer, step: number) {
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(step));
  const mac = createHmac('sha1', secret).update(counter).digest();
  const number = mac.readUInt32BE(mac.readUInt8(mac.length - 1) & 15) & 0x7fff_ffff;
  return String(number % 10 ** DIGITS).padStart(DIGITS, '0');
}

/**
 * The step of this code. One before and after is accepted, because clocks differ.
 * @param seconds of the database
 */
export function findTotpStep(secret: Buffer, code: string, seconds: number) {
  const current = Math.floor(seconds / STEP_SECONDS);
  // It may be copied with the words around it.
  const given = Buffer.from(code.replace(/\p{L}/gu, ''));
  // All three are compared, so that the time does not depend on the step.
  const isCode = (step: number) => equalDigests(Buffer.from(totpCode(secret, step)), given);
  return [current - 1, current, current + 1].filter(isCode).at(-1) ?? null;
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/** Base32 (RFC 4648) without padding, which some apps reject. */
export function base32(bytes: Buffer, alphabet = ALPHABET) {
  const bits = [...bytes].map((byte) => byte.toString(2).padStart(8, '0')).join('');
  return bits.replace(/.{1,5}/g, (five) => alphabet.charAt(parseInt(five.padEnd(5, '0'), 2)));
}

/** The QR code has to hold the name of the site twice. */
const MAX_ENCODED = 96;

/** What the QR code holds. A colon separates issuer and account, and so may be in neither. */
export function totpUri(secret: Buffer, issuer: string, account: string) {
  let site = '';
  for (const character of issuer.replaceAll(':', ' ')) {
    const longer = site + encodeURIComponent(character);
    if (longer.length > MAX_ENCODED) break;
    site = longer;
  }
  const name = encodeURIComponent(account.replaceAll(':', ' '));
  return `otpauth://totp/${site}:${name}?secret=${base32(secret)}&issuer=${site}`;
}

/** Letters and digits that are not mistaken for each other (Crockford's Base32). */
const LETTERS = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

/**
 * Ten codes of 120 random bits, so that a plain digest may be stored (ASVS 6.5.2: from 112 bits).
 */
export const createRecoveryCodes = () =>
  Array.from({ length: 10 }, () => base32(randomBytes(15), LETTERS).replace(/.{4}(?=.)/g, '$&-'));

/** @returns null if it is not a code */
export function recoveryDigest(text: string) {
  const letters = typedCode(text).replaceAll('O', '0').replace(/[IL]/g, '1');
  return /^[0-9A-HJKMNP-TV-Z]{24}$/.test(letters) ? sha256(letters) : null;
}

/** @param secret IDENTITY_SECRET, or one of IDENTITY_SECRET_PREVIOUS */
export const createTotpKey = (secret: string) => deriveServerKey(secret, 'gatehouse/identity/v1/');

/** The operator must first add the secret under which the app's key is sealed. */
const KEY_MISSING = new Failure('key_unknown', {
  message:
    'Codes of apps cannot be checked now. Use a recovery code or a passkey, or contact the operator.',
});

const UNKNOWN =
  'a value of IDENTITY_SECRET is missing: add the one with this key id to IDENTITY_SECRET_PREVIOUS';
const ALTERED = 'the sealed key of an authenticator app was altered';
const EARLIER =
  'keys of authenticator apps are sealed under IDENTITY_SECRET_PREVIOUS until the next use of the app';

/** The current key first. */
const keysOf = ({ factorSecrets }: IdentityService) => factorSecrets.map(createTotpKey);

/** What the operator must know before an earlier secret is removed. */
export async function reportTotpKeys(service: IdentityService) {
  const rows = await countTotpByKey(service.database);
  const { unknown, earlier } = staleKeys(keysOf(service), rows);
  for (const row of unknown) service.log.error(UNKNOWN, row);
  for (const row of earlier) service.log.info(EARLIER, row);
}

/**
 * All typed codes of an account, from everywhere. Passkeys do not count: their owner can always log
 * in.
 */
export const codeLimit = (secret: Buffer, userId: string): Limit => ({
  key: throttleKey(secret, ['code', userId]),
  mode: 'window',
  attempts: 20,
  seconds: DAY_SECONDS,
});

/** A code is counted before it is checked, and accepted once. */
export const checkCode: CheckCode = async (service, request, { id }, text) => {
  const { database, reportFactor } = service;
  const code = typedCode(text);
  const recovery = recoveryDigest(code);
  const factor = recovery ? 'recovery' : 'totp';
  const actor = actorOf(null, request);
  const limit = codeLimit(await service.throttleSecret(), id);
  // Counted first, so that simultaneous guesses stay within the limit.
  if ((await takeAttempt(database, SCHEMA.name, limit)) > 0) {
    reportFactor(factor, 'throttled', id);
    return new Failure('too_many_requests', { retryAfterSeconds: 3_600 });
  }
  const outcome = recovery
    ? await consumeRecoveryCode(database, actor, id, recovery)
    : await checkTotp(service, id, code);
  if (!outcome) {
    // The strongest sign that an attacker knows the password.
    await auditEvent(database, { event: 'factor.failed', actor }, id);
    reportFactor(factor, 'wrong', id);
    return new Failure('invalid_code');
  }
  await giveBackAttempts(database, SCHEMA.name, [limit.key]);
  if (outcome instanceof Failure) return outcome;
  reportFactor(factor, 'right', id);
  return `password, ${factor}`;
};

/** @returns whether the code is right, or why it cannot be checked */
async function checkTotp(service: IdentityService, userId: string, code: string) {
  const { database, log } = service;
  const totp = await findTotp(database, userId);
  if (!totp) return false;
  const keys = keysOf(service);
  const secret = unsealServiceSecret(keys, totp);
  if (secret === null) {
    const isKnown = keys.some(({ id }) => id === totp.key_id);
    log.error(isKnown ? ALTERED : UNKNOWN, { key_id: totp.key_id, user_id: userId });
    return KEY_MISSING;
  }
  const step = findTotpStep(Buffer.from(secret, 'base64'), code, await readClock(database));
  if (step === null) return false;
  const [current] = keys;
  const sealed = current && current.id !== totp.key_id ? sealSecret(current, secret, userId) : totp;
  return consumeTotpStep(database, step, totp, sealed);
}

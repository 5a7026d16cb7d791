import { deriveServerKey, type ServerKey } from '../../crypto/box.ts';
import { openSecret, sealSecret } from '../../crypto/sealed.ts';
import { giveBackAttempts, takeAttempt } from '../../db/attempts.ts';
import { type Limit, throttleKey } from '../../db/throttle.ts';
import { Failure } from '../../http/errors.ts';
import { actorOf } from '../audit.ts';
import { SCHEMA } from '../schema.ts';
import type { CheckCode, IdentityService } from '../service.ts';
import { findTotpStep, recoveryDigest } from './codes.ts';
import { countTotpByKey, findTotp, noteFailure, readClock, useRecoveryCode, useTotpStep } from './store.ts';

/** @param secret IDENTITY_SECRET, or one of IDENTITY_SECRET_PREVIOUS */
export const createTotpKey = (secret: string): ServerKey => deriveServerKey(secret, 'gatehouse/identity/v1/');

const KEY_MISSING = new Failure('key_unknown', {
  message: 'Codes of apps cannot be checked now. Use a recovery code or a passkey, or contact the operator.',
});

const UNKNOWN = 'a value of IDENTITY_SECRET is missing: add the one with this key id to IDENTITY_SECRET_PREVIOUS';
const ALTERED = 'the sealed key of an authenticator app was altered';
const EARLIER = 'keys of authenticator apps are sealed under IDENTITY_SECRET_PREVIOUS until the next use of the app';

/** What the operator must know before an earlier secret is removed. */
export async function reportKeys({ database, log, portal }: IdentityService): Promise<void> {
  const [current, ...previous] = (portal?.secrets ?? []).map((secret) => createTotpKey(secret).id);
  for (const { key_id, apps } of await countTotpByKey(database)) {
    if (previous.includes(key_id)) log.info(EARLIER, { key_id, apps });
    else if (key_id !== current) log.error(UNKNOWN, { key_id, apps });
  }
}

/** All typed codes of an account, from everywhere. Passkeys do not count: their owner can always log in. */
export const codeLimit = (secret: Buffer, userId: string): Limit =>
  ({ key: throttleKey(secret, ['code', userId]), mode: 'window', attempts: 20, seconds: 86_400 });

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
    const isRight = isLeft && (recovery
      ? await useRecoveryCode(database, actor, id, recovery) : await checkTotp(service, keys, id, code));
    if (isRight) await giveBackAttempts(database, SCHEMA.name, [limit.key]);
    // The strongest sign that an attacker knows the password.
    else if (isLeft) await noteFailure(database, actor, id);
    if (isRight instanceof Failure) return isRight;
    reportFactor(factor, isRight ? 'right' : isLeft ? 'wrong' : 'throttled', id);
    if (!isLeft) return new Failure('too_many_requests', { retryAfterSeconds: 3_600 });
    return isRight ? `password, ${factor}` : new Failure('invalid_code');
  };
}

async function checkTotp({ database, log }: IdentityService, keys: readonly ServerKey[], userId: string, code: string) {
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

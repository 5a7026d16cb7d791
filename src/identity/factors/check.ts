import { deriveServerKey, type ServerKey } from '../../crypto/box.ts';
import { openSecret } from '../../crypto/sealed.ts';
import type { Database } from '../../db/pool.ts';
import { giveBackAttempts, type Limit, takeAttempt, throttleKey } from '../../db/throttle.ts';
import { Failure } from '../../http/errors.ts';
import { type Job, removalJob } from '../../runtime/jobs.ts';
import { actorOf } from '../audit.ts';
import { SCHEMA } from '../migrations.ts';
import type { CheckCode, IdentityService } from '../service.ts';
import { recoveryDigest } from './recovery.ts';
import { findTotp, noteFailure, readClock, removeExpired, useRecoveryCode, useTotpStep } from './store.ts';
import { findTotpStep } from './totp.ts';

/** @param secret IDENTITY_SECRET */
export const createTotpKey = (secret: string): ServerKey => deriveServerKey(secret, 'gatehouse/identity/v1/');

const KEY_MISSING = new Failure('key_unknown', {
  message: 'Codes of apps cannot be checked now. Use a recovery code or a passkey, or contact the operator.',
});

/**
 * A code of an authenticator app, or a recovery code. Each is counted before it is checked, and accepted once.
 * @param secret IDENTITY_SECRET
 */
export function createCodeCheck(secret: string | null): CheckCode {
  const totpKey = secret === null ? null : createTotpKey(secret);
  return async (context, request, { id }, text) => {
    const { database, throttleSecret, reportFactor } = context;
    const code = text.replace(/\s/g, '');
    const [recovery, actor] = [recoveryDigest(code), actorOf(null, request)];
    const factor = recovery ? 'recovery' : 'totp';
    // All typed codes of an account, from everywhere. Passkeys do not count: their owner can always log in.
    const key = throttleKey(await throttleSecret(), ['code', id]);
    const limit: Limit = { key, mode: 'window', attempts: 20, seconds: 86_400 };
    const isLeft = await takeAttempt(database, SCHEMA, limit);
    const isRight = isLeft && (recovery
      ? await useRecoveryCode(database, actor, id, recovery) : await checkTotp(database, totpKey, id, code));
    if (isRight) await giveBackAttempts(database, SCHEMA, [key]);
    // The strongest sign that somebody else knows the password.
    else if (isLeft) await noteFailure(database, actor, id);
    if (isRight instanceof Failure) return isRight;
    reportFactor(factor, isRight ? 'right' : isLeft ? 'wrong' : 'throttled', id);
    if (!isLeft) return new Failure('too_many_requests', { retryAfterSeconds: 3_600 });
    return isRight ? `password, ${factor}` : new Failure('invalid_code');
  };
}

async function checkTotp(database: Database, totpKey: ServerKey | null, userId: string, code: string) {
  const totp = await findTotp(database, userId);
  if (!totp) return false;
  const secret = totpKey && openSecret([totpKey], totp);
  if (!secret) return KEY_MISSING;
  const step = findTotpStep(Buffer.from(secret, 'base64'), code, await readClock(database));
  return step !== null && (await useTotpStep(database, userId, step));
}

export const factorJobs = ({ database, metrics }: IdentityService): readonly Job[] =>
  (['pending_sign_ins', 'used_challenges'] as const).map((table) =>
    removalJob(metrics, `identity.${table}`, 300, (max) => removeExpired(database, table, max)));

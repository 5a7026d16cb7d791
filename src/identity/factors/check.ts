import { deriveServerKey, type ServerKey } from '../../crypto/box.ts';
import { openSecret } from '../../crypto/sealed.ts';
import { giveBackAttempts, type Limit, takeAttempt, throttleKey } from '../../db/throttle.ts';
import type { RequestInfo } from '../../http/call.ts';
import { Failure } from '../../http/errors.ts';
import { actorOf } from '../audit.ts';
import { SCHEMA } from '../migrations.ts';
import type { Account } from '../model.ts';
import type { CheckCode, FactorContext } from '../service.ts';
import { recoveryDigest } from './recovery.ts';
import { findTotp, noteFailure, useRecoveryCode, useTotpStep } from './store.ts';
import { findTotpStep } from './totp.ts';

/** @param secret IDENTITY_SECRET */
export const createTotpKey = (secret: string): ServerKey => deriveServerKey(secret, 'gatehouse/identity/v1/');

/** All typed codes of an account, from everywhere. Passkeys do not count: their owner can always log in. */
const codeLimit = async ({ throttleSecret }: FactorContext, userId: string): Promise<Limit> =>
  ({ key: throttleKey(await throttleSecret(), ['code', userId]), mode: 'window', attempts: 20, seconds: 86_400 });

const KEY_MISSING = new Failure('key_unknown', {
  message: 'Codes of apps cannot be checked now. Use a recovery code or a passkey, or contact the operator.',
});

/**
 * A code of an authenticator app, or a recovery code. Each is counted before it is checked, and accepted once.
 * @param secret IDENTITY_SECRET
 */
export function createCodeCheck(secret: string | null): CheckCode {
  const totpKey = secret === null ? null : createTotpKey(secret);
  return async (context, request, account, code) => {
    const { database } = context;
    const limit = await codeLimit(context, account.id);
    const isLeft = await takeAttempt(database, SCHEMA, limit);
    if (!isLeft) return new Failure('too_many_requests', { retryAfterSeconds: 3_600 });
    const method = await check(context, totpKey, request, account, code.replace(/\s/g, ''));
    const isWrong = method === null;
    if (!isWrong) await giveBackAttempts(database, SCHEMA, [limit.key]);
    // The strongest sign that somebody else knows the password.
    else await noteFailure(database, actorOf(null, request), account.id);
    return isWrong ? new Failure('invalid_code') : method instanceof Failure ? method : `password, ${method}`;
  };
}

async function check(
  { database }: FactorContext, totpKey: ServerKey | null, request: RequestInfo, { id }: Account, code: string,
) {
  if (!/^[0-9]{6}$/.test(code)) {
    const recovery = recoveryDigest(code);
    return recovery && (await useRecoveryCode(database, actorOf(null, request), id, recovery)) ? 'recovery' : null;
  }
  const totp = await findTotp(database, id);
  if (!totp?.confirmed) return null;
  const secret = totpKey && openSecret([totpKey], totp);
  if (!secret) return KEY_MISSING;
  const step = findTotpStep(Buffer.from(secret, 'base64'), code, totp.now);
  return step !== null && (await useTotpStep(database, id, step)) ? 'totp' : null;
}

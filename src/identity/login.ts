import { randomUUID } from 'node:crypto';
import { decoyHash, hashPassword, needsRehash, verifyPassword } from '../crypto/password.ts';
import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { describeTrouble } from '../runtime/trouble.ts';
import { accountKey, isActive, mayLogIn, type Session } from './rules.ts';
import type { IdentityService } from './service.ts';
import { viewSession } from './shapes.ts';
import { findAccount, findSessionByToken, insertSession, logOut, replaceHash } from './store.ts';
import { createSessionToken, parseSessionToken } from './token.ts';

type Open<Body> = Call<null, unknown, unknown, Body>;

/**
 * Username and password to a session token. An unknown name, a wrong password and an account that may not log in get
 * the same answer after the same work (ASVS 6.3.8): one look-up, one hash.
 */
export async function login(
  { body }: Open<{ username: string; password: string }>,
  service: IdentityService,
): Promise<Reply<{ session: string }> | Failure<'invalid_credentials'>> {
  const { database, hashing, passwords, log } = service;
  const token = createSessionToken();
  // The session is made only if the hash is still the one that was checked. Another login may just have renewed it: then
  // the new one is checked, once more.
  for (let attempt = 1; attempt <= 2; attempt += 1) {
    const account = await findAccount(database, accountKey(body.username));
    const stored = account?.password_hash ?? decoyHash(passwords.cost);
    const isRight = await hashing.run(() => verifyPassword(body.password, stored));
    if (!account || account.password_hash === null || !isRight || !mayLogIn(account)) break;
    if (!(await insertSession(database, randomUUID(), token, account, service.sessionSeconds))) continue;
    if (needsRehash(stored, passwords.cost)) {
      // The login has succeeded; whatever hinders this, the next one makes up for it.
      await upgradeHash(service, account.id, stored, body.password).catch((error) => log.warn('password hash not renewed', describeTrouble(error)));
    }
    return { data: { session: token } };
  }
  return new Failure('invalid_credentials');
}

/** The cost was changed since this hash was made; only now is the password at hand to make a new one. */
async function upgradeHash({ database, hashing, passwords }: IdentityService, userId: string, before: string, password: string): Promise<void> {
  const after = await hashing.run(() => hashPassword(password, passwords.cost));
  await replaceHash(database, userId, before, after);
}

/** Idempotent: a token that is unknown or has ended also gets 200, because what was asked for is so. */
export async function logout({ body }: Open<{ session: string }>, service: IdentityService): Promise<Reply<null> | Failure<'invalid_body'>> {
  const token = parseSessionToken(body.session);
  // Not a token at all, such as a session's id: a 200 would let its owner believe that the session has ended.
  if (!token) return new Failure('invalid_body', { fields: [{ path: '/session', message: 'must be the session token that login returned' }] });
  await logOut(service.database, token);
  return { data: null };
}

/** The session of a token, if it is still active. */
export async function lookUpSession({ body }: Open<{ session: string }>, service: IdentityService): Promise<Reply<ReturnType<typeof viewSession>> | Failure<'invalid_session'>> {
  const token = parseSessionToken(body.session);
  const session: Session | null = token && (await findSessionByToken(service.database, token));
  return session && isActive(session) ? { data: viewSession(session) } : new Failure('invalid_session');
}

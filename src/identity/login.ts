import { randomUUID } from 'node:crypto';
import { decoyHash, hashPassword, needsRehash, verifyPassword } from '../crypto/password.ts';
import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { Infer } from '../http/shape.ts';
import { describeError } from '../runtime/errors.ts';
import { commonPasswords } from './common.ts';
import { actorOf } from './guard.ts';
import { type Caller, may } from './policy.ts';
import { type Account, accountKey, isActive, mayLogIn, passwordError, passwordMessage } from './rules.ts';
import type { IdentityService } from './service.ts';
import { type changeShape, type sessionShape, viewSession } from './shapes.ts';
import { findSessionByToken, insertSession, logOut } from './store/sessions.ts';
import { findAccount, replaceHash, replacePassword } from './store/users.ts';
import { RejectedPassword, withLoginThrottle } from './throttle.ts';
import { createSessionToken, parseSessionToken } from './token.ts';

type Open<Body> = Call<null, unknown, unknown, Body>;
type Refused = Failure<'invalid_credentials' | 'too_many_requests'>;

/** Long enough for every browser there is; the rest would only fill the table. */
const MAX_USER_AGENT = 256;

/**
 * Username and password to a session token. An unknown name, a wrong password and an account that may not log in get
 * the same answer after the same work (ASVS 6.3.8): one look-up, one hash, one count.
 */
export async function login({ body, request }: Open<{ username: string; password: string }>, service: IdentityService): Promise<Reply<{ session: string }> | Refused> {
  const token = createSessionToken();
  const name = accountKey(body.username);
  const userAgent = request.headers['user-agent']?.slice(0, MAX_USER_AGENT) ?? null;
  const session = { id: randomUUID(), token, seconds: service.sessionSeconds, ip: request.address, userAgent };
  const outcome = await withLoginThrottle(service, { request, caller: null }, name, 'login.failed', (pair) =>
    // The session is made only if the hash is still the one that was checked.
    withVerifiedPassword(service, name, body.password, async (account) => {
      const actor = { ...actorOf(null, request), via: 'password', userId: account.id } as const;
      if (!(await insertSession(service.database, actor, session, account, pair))) return null;
      // The login has succeeded; whatever hinders this, the next one makes up for it.
      await upgradeHash(service, account, body.password).catch((error) => service.log.warn('password hash not renewed', describeError(error)));
      return token;
    }),
  );
  return outcome instanceof Failure ? outcome : { data: { session: outcome } };
}

/**
 * Checks a password, and does something if it is right.
 * @param act returns null when the stored hash is no longer the one that was checked. Another login may just have renewed
 * it: then the new one is checked, once more
 */
async function withVerifiedPassword<T>({ database, passwords }: IdentityService, name: string, password: string, act: (account: Account) => Promise<T | null>): Promise<T | RejectedPassword> {
  let miss = new RejectedPassword(null, 'no such user');
  for (let attempt = 1; attempt <= 2; attempt += 1) {
    const account = await findAccount(database, name);
    const isRight = await verifyPassword(password, account?.password_hash ?? decoyHash(passwords.cost));
    if (account) miss = new RejectedPassword(account.id, account.password_hash === null ? 'no password' : isRight ? 'disabled' : 'wrong password');
    if (!account || account.password_hash === null || !isRight || !mayLogIn(account)) return miss;
    const done = await act(account);
    if (done !== null) return done;
  }
  return miss;
}

/** The cost was changed since this hash was made; only now is the password at hand to make a new one. */
async function upgradeHash({ database, passwords }: IdentityService, account: Account, password: string): Promise<void> {
  const before = account.password_hash ?? '';
  if (!needsRehash(before, passwords.cost)) return;
  await replaceHash(database, account.id, before, await hashPassword(password, passwords.cost));
}

/** One's own password (ASVS 6.2.3). The session that asks stays; the user's other ones end. */
export async function changePassword(
  { body, caller, request }: Call<Caller, unknown, unknown, { current_password: string; new_password: string }>,
  service: IdentityService,
): Promise<Reply<Infer<typeof changeShape>> | Refused | Failure<'forbidden' | 'invalid_body'>> {
  const { session, user } = caller;
  if (!session || !user || !may(caller, 'change own password', user.id)) return new Failure('forbidden', { message: 'Log in: an API key cannot change a password.' });
  const { database, passwords } = service;
  const fault = passwordError(body.new_password, passwords.minLength, commonPasswords());
  if (fault !== null) return new Failure('invalid_body', { fields: [{ path: '/new_password', message: fault }] });
  const actor = actorOf(caller, request);
  const ended = await withLoginThrottle(service, { request, caller }, accountKey(user.username), 'password.failed', (pair) =>
    withVerifiedPassword(service, accountKey(user.username), body.current_password, async (account) => {
      const after = await hashPassword(body.new_password, passwords.cost);
      return replacePassword(database, actor, account, after, { sessionId: session.id, pair });
    }),
  );
  if (ended instanceof Failure && ended.code === 'invalid_credentials') return new Failure('invalid_credentials', { message: 'The current password is wrong.' });
  return ended instanceof Failure ? ended : { data: { message: passwordMessage(ended), status: 'CHANGED' } };
}

/** Idempotent: a token that is unknown or has ended also gets 200, because what was asked for is so. */
export async function logout({ body, request }: Open<{ session: string }>, { database }: IdentityService): Promise<Reply<null> | Failure<'invalid_body'>> {
  const token = parseSessionToken(body.session);
  // Not a token at all, such as a session's id: a 200 would let its owner believe that the session has ended.
  if (!token) return new Failure('invalid_body', { fields: [{ path: '/session', message: 'must be the session token that login returned' }] });
  await logOut(database, { event: 'session.logged_out', actor: { ...actorOf(null, request), via: 'session' } }, token);
  return { data: null };
}

/** The session of a token, if it is still active. */
export async function lookUpSession({ body }: Open<{ session: string }>, service: IdentityService): Promise<Reply<Infer<typeof sessionShape>> | Failure<'invalid_session'>> {
  const token = parseSessionToken(body.session);
  const session = token && (await findSessionByToken(service, token));
  return session && isActive(session) ? { data: viewSession(session) } : new Failure('invalid_session');
}

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { decoyHash, needsRehash, verifyPassword } from '../crypto/password.ts';
import { type Limit, readThrottle, throttleKey } from '../db/throttle.ts';
import { networkOf } from '../http/address.ts';
import type { Call, RequestInfo } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { type Infer, object, oneOf, text } from '../http/shape.ts';
import { describeError, Overloaded } from '../runtime/errors.ts';
import { actorOf } from './audit.ts';
import { SCHEMA } from './migrations.ts';
import { type Account, accountKey, isActive, mayLogIn, type SessionView, viewSession } from './model.ts';
import { createPasswords, passwordError } from './passwords.ts';
import { type Answer, type Ask, type Caller, may } from './policy.ts';
import type { IdentityService } from './service.ts';
import { endedText } from './sessions.ts';
import { type Actor, type AuditEvent, recordAudit } from './store/audit.ts';
import { findCallerByToken, findSessionByToken, insertSession, logOut, type NewSession } from './store/sessions.ts';
import { recordFailure } from './store/throttles.ts';
import { findAccount, replaceHash, replacePassword } from './store/users.ts';
import { createSessionToken, parseSessionToken } from './token.ts';

type AnonymousCall<Body> = Call<null, unknown, unknown, Body>;
type Rejection = 'invalid_credentials' | 'too_many_requests';

const HOUR = 3_600;
/** Longer than any browser's; the rest would only fill the table. */
const MAX_USER_AGENT = 256;
/** A throttled client waits this long for its answer: otherwise a flood of rejections takes the whole processor. */
const HOLD_MS = 500;

/** One attempt to prove a password. */
interface Attempt {
  /** Also of an account that does not exist: both are counted alike (ASVS 6.3.8). */
  readonly name: string;
  readonly actor: Actor;
  readonly failure: AuditEvent;
  /** The account from this network; the account; the network. */
  readonly limits: readonly [Limit, Limit, Limit];
}

/**
 * Username and password to a session token. An unknown name, a wrong password and an account that may not log in get
 * the same answer after the same work (ASVS 6.3.8).
 */
export async function login(
  { body, request }: AnonymousCall<{ username: string; password: string }>, service: IdentityService,
): Answer<{ session: string }, Rejection> {
  const { database, log } = service;
  const attempt = await createAttempt(service, request, null, body.username, 'login.failed');
  const session = createSession(service, request);
  for (let round = 1; round <= ROUNDS; round += 1) {
    const account = await checkPassword(service, attempt, body.password);
    if (account instanceof Failure) return account;
    const actor = { ...attempt.actor, via: 'password', userId: account.id } as const;
    if (!(await insertSession(database, actor, session, account, attempt.limits[0].key))) continue;
    // The login has succeeded. If this fails, the next login tries again.
    await upgradeHash(service, account, body.password).catch((error) => {
      log.warn('password hash not renewed', describeError(error));
    });
    return { data: { session: session.token } };
  }
  return new Failure('invalid_credentials');
}

/** The hash may change while a password is checked, because a concurrent login renews it: then the new one is checked. */
const ROUNDS = 2;

export const passwordChangeShape = object({
  message: text(),
  status: oneOf('CHANGED'),
  session: text({ description: 'The token of a new session; all earlier sessions have ended' }),
});

/** One's own password (ASVS 6.2.3). All sessions of the user end; the reply carries the token of a new one (7.2.4). */
export async function changePassword(
  { body, caller, request }: Ask<unknown, unknown, { current_password: string; new_password: string }>,
  service: IdentityService,
): Answer<Infer<typeof passwordChangeShape>, Rejection | 'forbidden' | 'invalid_body'> {
  const { session: current, user } = caller;
  if (!current || !user || !may(caller, 'change own password', user.id)) {
    return new Failure('forbidden', { message: 'Log in: an API key cannot change a password.' });
  }
  // Before the current password is checked, so that a rejected new one counts no failure.
  const message = passwordError(body.new_password, service.passwords.minLength);
  if (message !== null) return new Failure('invalid_body', { fields: [{ path: '/new_password', message }] });
  const attempt = await createAttempt(service, request, caller, user.username, 'password.failed');
  for (let round = 1; round <= ROUNDS; round += 1) {
    const account = await checkPassword(service, attempt, body.current_password);
    if (account instanceof Failure) return account.code === 'invalid_credentials' ? wrongCurrent() : account;
    const hash = await createPasswords(service.passwords, service.hashing).hash(body.new_password);
    const session = createSession(service, request);
    const ended = await replacePassword(service.database, attempt.actor, account, hash, session, attempt.limits[0].key);
    if (ended === 'changed') continue;
    const message = `Password changed. ${endedText(ended)} ended.`;
    return { data: { message, status: 'CHANGED', session: session.token } };
  }
  return wrongCurrent();
}

const wrongCurrent = () => new Failure('invalid_credentials', { message: 'The current password is wrong.' });

/** Names and networks are stored only as keyed digests. The scope is part of each, so that no two keys are equal. */
async function createAttempt(
  service: IdentityService, request: RequestInfo, caller: Caller | null, username: string, failure: AuditEvent,
): Promise<Attempt> {
  const [name, network, secret] = [accountKey(username), networkOf(request.address), await service.throttleSecret()];
  const [here, account, everyone] = [['pair', name, network], ['account', name], ['network', network]] as const;
  const limits = [
    { key: throttleKey(secret, here), mode: 'consecutive', attempts: 5, seconds: 12 * HOUR },
    { key: throttleKey(secret, account), mode: 'window', attempts: 100, seconds: HOUR },
    { key: throttleKey(secret, everyone), mode: 'window', attempts: 1_000, seconds: HOUR },
  ] as const;
  return { name, actor: actorOf(caller, request), failure, limits };
}

const createSession = (service: IdentityService, request: RequestInfo): NewSession => ({
  id: randomUUID(),
  token: createSessionToken(),
  seconds: service.sessionSeconds,
  ip: request.address,
  userAgent: request.headers['user-agent']?.slice(0, MAX_USER_AGENT) ?? null,
});

/**
 * Enters the throttle, waits for a hashing slot, and verifies. A failure is counted before it is returned.
 * @throws Overloaded if too many passwords wait to be hashed
 */
async function checkPassword(
  service: IdentityService, attempt: Attempt, password: string,
): Promise<Account | Failure<Rejection>> {
  const { database, hashing, countPasswordCheck } = service;
  // Before the queue, so that a throttled attempt takes no place in it. A network from which the account has logged in
  // goes first: others could otherwise fill the queue.
  const { wait, known } = await readThrottle(database, SCHEMA, attempt.limits);
  const outcome = wait > 0 ? tooMany(wait) : await hashing.run(() => verify(service, attempt, password), known)
    .catch(async (error) => {
      if (error instanceof Overloaded) await hold(service);
      throw error;
    });
  const isThrottled = outcome instanceof Failure && outcome.code === 'too_many_requests';
  countPasswordCheck([isThrottled ? 'throttled' : outcome instanceof Failure ? 'wrong' : 'right']);
  if (isThrottled) await hold(service);
  return outcome;
}

/** Runs in a hashing slot. */
async function verify(
  service: IdentityService, attempt: Attempt, password: string,
): Promise<Account | Failure<Rejection>> {
  const { database, passwords } = service;
  const { actor, limits } = attempt;
  // Others may have failed while this attempt was queued.
  const { wait } = await readThrottle(database, SCHEMA, limits);
  if (wait > 0) return tooMany(wait);
  const account = await findAccount(database, attempt.name);
  const isRight = await verifyPassword(password, account?.password_hash ?? decoyHash(passwords.cost));
  if (account?.password_hash && isRight && mayLogIn(account)) return account;
  const detail = !account ? 'no such user' : !account.password_hash ? 'no password' : isRight ? 'disabled' : 'wrong password';
  const userId = account?.id ?? null;
  const state = await recordFailure(database, { event: attempt.failure, actor, detail }, userId, limits);
  // One row where a delay begins, none for attempts during it: attackers could fill the disk.
  const delay = { event: 'login.throttled', actor, detail: `for ${Math.ceil(state.wait)} s` } as const;
  if (state.wait > 0) await recordAudit(database, delay, userId);
  return state.was_blocked ? tooMany(state.wait) : new Failure('invalid_credentials');
}

const tooMany = (seconds: number) => new Failure('too_many_requests', { retryAfterSeconds: seconds });
/** Beyond so many held at once, an answer is not held. */
const hold = ({ held }: IdentityService) => held.run(() => sleep(HOLD_MS)).catch(() => {});

/** The cost setting has changed since this hash was made. Only at a login is the password at hand. */
async function upgradeHash(service: IdentityService, account: Account, password: string): Promise<void> {
  const before = account.password_hash ?? '';
  if (!needsRehash(before, service.passwords.cost)) return;
  const after = await createPasswords(service.passwords, service.hashing).hash(password);
  await replaceHash(service.database, account.id, before, after);
}

/** Idempotent: a token that is unknown or has ended also gets 200. */
export async function logout(
  { body, request }: AnonymousCall<{ session: string }>, service: IdentityService,
): Answer<null, 'invalid_body'> {
  const token = parseSessionToken(body.session);
  if (!token) {
    // For anything but a token, such as a session's id, a 200 would suggest that the session has ended.
    const message = 'must be the session token that login returned';
    return new Failure('invalid_body', { fields: [{ path: '/session', message }] });
  }
  // Looked up first: invented tokens must not cost a write.
  const session = await findCallerByToken(service, token);
  const actor = { ...actorOf(null, request), via: 'session' } as const;
  if (session && !session.revoked) await logOut(service.database, actor, session.id);
  return { data: null };
}

/** The session of a token, if it is active. */
export async function lookUpSession(
  { body }: AnonymousCall<{ session: string }>, service: IdentityService,
): Answer<SessionView, 'invalid_session'> {
  const token = parseSessionToken(body.session);
  const session = token && (await findSessionByToken(service, token));
  return session && isActive(session) ? { data: viewSession(session) } : new Failure('invalid_session');
}

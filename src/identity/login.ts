import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { decoyHash, needsRehash, verifyPassword } from '../crypto/password.ts';
import { type Limit, readThrottle, throttleKey } from '../db/throttle.ts';
import type { Call, RequestInfo } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { dateTime, object, oneOf, optional, text } from '../http/shape.ts';
import { describeError, Overloaded } from '../runtime/errors.ts';
import { actorOf } from './audit.ts';
import { markSeen } from './guard.ts';
import { type Account, accountKey, isActive, mayLogIn, viewSession } from './model.ts';
import { type Ask, type Caller, may } from './policy.ts';
import { passwordError } from './rules.ts';
import { SCHEMA } from './schema.ts';
import type { CheckCode, IdentityService } from './service.ts';
import { endedText, findSession } from './sessions.ts';
import { type AuditEntry, recordFailure } from './store/audit.ts';
import {
  endSession,
  findSessionByToken,
  insertSession,
  type NewSession,
} from './store/sessions.ts';
import { findAccount, replaceHash, replacePassword } from './store/users.ts';
import { createSessionToken, parseSessionToken } from './token.ts';
import { hashOf } from './users.ts';

type AnonymousCall<Body> = Call<null, unknown, unknown, Body>;

const HOUR = 3_600;
/** Longer than any browser's; the rest would only fill the table. */
const MAX_USER_AGENT = 256;
/** A throttled client waits this long for its answer: otherwise a flood of rejections takes the whole processor. */
const HOLD_MS = 500;
/** A concurrent login may renew the hash while a password is checked: then the new one is checked. */
const ROUNDS = 2;

export const loginShape = object({
  session: text({ description: 'The session token: session:<uuid>' }),
  password_expires_at: optional(
    dateTime('Only if the password was generated: change it before this time'),
  ),
});

export async function login(
  { body, request }: AnonymousCall<{ username: string; password: string; otp: string | undefined }>,
  service: IdentityService,
) {
  const prove = async (account: Account) => {
    if (!needsFactor(service, account)) return 'password';
    const checked =
      body.otp === undefined
        ? null
        : await service.checkCode?.(service, request, account, body.otp);
    return checked ?? new Failure('second_factor_needed');
  };
  const session = await startSession(service, request, body.username, body.password, prove);
  if (session instanceof Failure) return session;
  return {
    data: { session: session.token, password_expires_at: session.expiresAt?.toISOString() },
  };
}

/** An unknown name, a wrong password and a closed account get the same answer after the same work (ASVS 6.3.8). */
export async function startSession(
  service: IdentityService,
  request: RequestInfo,
  username: string,
  password: string,
  prove: Prove,
) {
  const attempt = await createAttempt(service, request, null, username, 'login.failed');
  let methods: string | null = null;
  for (let round = 1; round <= ROUNDS; round += 1) {
    const account = await checkPassword(service, attempt, password);
    if (account instanceof Failure) return account;
    // In the first round only, because a code is accepted once.
    const proven: Awaited<ReturnType<Prove>> = methods ?? (await prove(account));
    if (proven instanceof Failure) return proven;
    methods = proven;
    const session = await insertLogin(
      service,
      request,
      account,
      'password',
      methods !== 'password',
    );
    if (!session) continue;
    await upgradeHash(service, account, password);
    return { ...session, expiresAt: account.password_expires_at };
  }
  return new Failure('invalid_credentials');
}

/** A super administrator's login, or everyone's, may need a factor that has not been set up yet. */
export function needsFactor(
  { portal }: IdentityService,
  { second_factor, super_admin }: Account,
): boolean {
  const required = portal?.requireSecondFactor ?? 'off';
  return second_factor || required === 'all' || (required === 'super_admin' && super_admin);
}

/** Decides what follows a right password. @returns the methods that prove the login, such as `password, totp` */
type Prove = (
  account: Account,
) => Promise<string | Failure<'second_factor_needed'> | Awaited<ReturnType<CheckCode>>>;

/** @returns null if the account has changed since it was checked */
export async function insertLogin(
  service: IdentityService,
  request: RequestInfo,
  account: Account,
  via: 'password' | 'passkey',
  isProven: boolean,
): Promise<NewSession | null> {
  const { failure, limits } = await createAttempt(
    service,
    request,
    null,
    account.username,
    'login.failed',
  );
  const session = createSession(service, request, isProven);
  const actor = { ...failure.actor, via, userId: account.id };
  return (await insertSession(service.database, actor, session, account, limits[0].key))
    ? session
    : null;
}

const session = text({
  description: 'The token of a new session; all earlier sessions have ended',
});
export const passwordChangeShape = object({ message: text(), status: oneOf('CHANGED'), session });

/** One's own password (ASVS 6.2.3). All sessions of the user end; the reply has the token of a new one (ASVS 7.2.4). */
export async function changePassword(
  {
    body,
    caller,
    request,
  }: Ask<unknown, unknown, { current_password: string; new_password: string }>,
  service: IdentityService,
) {
  const { session: current, user } = caller;
  if (!current || !user || !may(caller, 'change own password', user.id)) {
    return new Failure('forbidden', { message: 'Log in: an API key cannot change a password.' });
  }
  // Before the current password is checked, so that a rejected new one counts no failure.
  const error = passwordError(body.new_password, service.passwords, user);
  if (error !== null)
    return new Failure('invalid_body', { fields: [{ path: '/new_password', message: error }] });
  const attempt = await createAttempt(service, request, caller, user.username, 'password.failed');
  const actor = actorOf(caller, request);
  for (let round = 1; round <= ROUNDS; round += 1) {
    const account = await checkPassword(service, attempt, body.current_password);
    if (account instanceof Failure && account.code !== 'invalid_credentials') return account;
    // Another user may have this name by now.
    if (account instanceof Failure || account.id !== user.id) return WRONG_CURRENT;
    const hash = await hashOf(body.new_password, service);
    const session = createSession(service, request, true);
    const changed = await replacePassword(
      service.database,
      actor,
      account,
      hash,
      session,
      attempt.limits[0].key,
    );
    if (typeof changed === 'string') continue;
    const message = `Password changed. ${endedText(changed.ended_sessions)} ended.`;
    return { data: { message, status: 'CHANGED' as const, session: session.token } };
  }
  return WRONG_CURRENT;
}

const WRONG_CURRENT = new Failure('invalid_credentials', {
  message: 'The current password is wrong or has expired.',
});

/** An attempt to prove a password. The limits are for the account from this network, the account, and the network. */
type Attempt = Readonly<{
  name: string;
  failure: AuditEntry;
  limits: readonly [Limit, Limit, Limit];
}>;

/** An account that does not exist is counted too (ASVS 6.3.8). */
async function createAttempt(
  service: IdentityService,
  request: RequestInfo,
  caller: Caller | null,
  username: string,
  event: AuditEntry['event'],
): Promise<Attempt> {
  const [name, secret] = [accountKey(username), await service.throttleSecret()];
  const failure = { event, actor: actorOf(caller, request) };
  return { name, failure, limits: loginLimits(secret, name, request.network) };
}

/** Names and networks are stored only as keyed digests. */
export function loginLimits(secret: Buffer, name: string, network: string): Attempt['limits'] {
  const key = (...parts: string[]) => throttleKey(secret, parts);
  return [
    { key: key('pair', name, network), mode: 'consecutive', attempts: 5, seconds: 12 * HOUR },
    { key: key('account', name), mode: 'window', attempts: 100, seconds: HOUR },
    { key: key('network', network), mode: 'window', attempts: 1_000, seconds: HOUR },
  ];
}

const createSession = (
  service: IdentityService,
  { address, headers }: RequestInfo,
  isProven: boolean,
): NewSession => ({
  id: randomUUID(),
  token: createSessionToken(),
  seconds: service.sessionSeconds,
  isProven,
  ip: address,
  userAgent: headers['user-agent']?.slice(0, MAX_USER_AGENT) ?? null,
});

/** @throws Overloaded if too many passwords wait to be hashed */
async function checkPassword(service: IdentityService, attempt: Attempt, password: string) {
  const { database, hashing, held, countPasswordCheck } = service;
  // Beyond the limit of held answers, an answer is not held.
  const hold = () => held.run(() => sleep(HOLD_MS)).catch(() => {});
  try {
    // Before the queue, so that a throttled attempt does not fill it. A network known to the account has priority:
    // otherwise attempts from other networks could fill the queue.
    const { wait, known } = await readThrottle(database, SCHEMA.name, attempt.limits);
    const checked =
      wait > 0 ? tooMany(wait) : await hashing.run(() => verify(service, attempt, password), known);
    const isThrottled = checked instanceof Failure && checked.code === 'too_many_requests';
    countPasswordCheck([
      isThrottled ? 'throttled' : checked instanceof Failure ? 'wrong' : 'right',
    ]);
    if (isThrottled) await hold();
    return checked;
  } catch (error) {
    if (error instanceof Overloaded) await hold();
    throw error;
  }
}

/** Runs in a hashing slot. A failure is counted before it is returned. */
async function verify(
  service: IdentityService,
  { name, failure, limits }: Attempt,
  password: string,
) {
  const { database, passwords } = service;
  // Others may have failed while this attempt was queued.
  const { wait } = await readThrottle(database, SCHEMA.name, limits);
  if (wait > 0) return tooMany(wait);
  const account = await findAccount(database, name);
  const hash = account?.password_hash;
  const isRight = await verifyPassword(password, hash ?? decoyHash(passwords.cost));
  if (account && hash && isRight && mayLogIn(account) && !account.password_expired) return account;
  const closed = account?.password_expired ? 'password expired' : 'disabled';
  const detail = !account
    ? 'no such user'
    : !hash
      ? 'no password'
      : isRight
        ? closed
        : 'wrong password';
  const state = await recordFailure(database, { ...failure, detail }, account?.id ?? null, limits);
  return state.was_blocked ? tooMany(state.wait) : new Failure('invalid_credentials');
}

const tooMany = (seconds: number) =>
  new Failure('too_many_requests', { retryAfterSeconds: seconds });

/** Replaces a hash that has another cost than the setting. Only a login has the password for this. */
async function upgradeHash(
  service: IdentityService,
  { id, password_hash }: Account,
  password: string,
): Promise<void> {
  if (!needsRehash(password_hash ?? '', service.passwords.cost)) return;
  await hashOf(password, service)
    .then((hash) => replaceHash(service.database, id, password_hash, hash))
    // The login has succeeded. The next one tries again.
    .catch((error) => service.log.warn('password hash not renewed', describeError(error)));
}

/** Idempotent: a token that is unknown or has ended also gets 200. */
export async function logout(
  { body, request }: AnonymousCall<{ session: string }>,
  service: IdentityService,
) {
  const token = parseSessionToken(body.session);
  // For anything but a token, such as a session's id, a 200 would suggest that the session has ended.
  const message = 'must be the session token that login returned';
  if (!token) return new Failure('invalid_body', { fields: [{ path: '/session', message }] });
  // Looked up first: invented tokens must not cost a write.
  const session = await findSessionByToken(service, token);
  const actor = { ...actorOf(null, request), via: 'session' } as const;
  if (session && !session.revoked)
    await endSession(service.database, actor, session.id, 'session.logged_out');
  return { data: null };
}

/** The session of a token, if it is active. This is a use of the session, as each check of its token is. */
export async function lookUpSession(
  { body }: AnonymousCall<{ session: string }>,
  service: IdentityService,
) {
  const session = await findSession(body.session, service);
  if (!session || !isActive(session))
    return new Failure('invalid_session', { credential: 'session' });
  markSeen(service, session);
  return { data: viewSession(session) };
}

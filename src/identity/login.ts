import { randomUUID } from 'node:crypto';
import { normalizePassword } from '../platform/crypto/scrypt.ts';
import { sha256 } from '../platform/crypto/token.ts';
import type { Call, RequestInfo } from '../platform/http/route/route.ts';
import { Failure } from '../platform/http/route/errors.ts';
import { dateTime, object, oneOf, optional, text } from '../platform/http/route/schema.ts';
import { describeError } from '../platform/runtime/errors.ts';
import { type Account, accountKey, isActive, viewSession } from './model.ts';
import { checkPassword, loginThrottle, needsRehash } from './passwords.ts';
import { forbidden, type IdentityCall, invalid, refusalOf } from './policy.ts';
import { passwordError } from './rules.ts';
import type { IdentityService } from './service.ts';
import { endedText, findSession } from './sessions.ts';
import { actorOf, auditEvent } from './store/audit.ts';
import { logOutSession } from './store/session-ends.ts';
import { insertSession } from './store/sessions.ts';
import { replaceHash, replacePassword } from './store/users.ts';
import { createSessionToken, parseSessionToken } from './token.ts';
import { hashOf } from './users.ts';

type AnonymousCall<Body> = Call<null, unknown, unknown, Body>;

/** Longer than any browser's; the rest would only fill the table. */
const MAX_USER_AGENT = 256;
/** A concurrent login may renew the hash during a check: then the new one is checked. */
const MAX_CHECKS = 2;

export const loginSchema = object({
  session: text({ description: 'The session token: session:<uuid>' }),
  password_expires_at: optional(
    dateTime('Only if the password was generated: change it before this time'),
  ),
});

export async function login(
  {
    body: { username, password, otp },
    request,
  }: AnonymousCall<{ username: string; password: string; otp: string | undefined }>,
  service: IdentityService,
) {
  const account = await checkPassword(service, request, null, username, password);
  if (account instanceof Failure) return account;
  const methods = await methodsOf(service, request, account, otp);
  if (methods instanceof Failure) {
    await auditPendingLogin(service, account, request, 'second factor needed');
    return methods;
  }
  const session = await startSession(service, request, account, password, methods);
  if (session instanceof Failure) return session;
  const password_expires_at = account.password_expires_at?.toISOString();
  return { data: { session: session.token, password_expires_at } };
}

/** @returns how a login after the right password is proved, or why the code was not accepted */
async function methodsOf(
  service: IdentityService,
  request: RequestInfo,
  account: Account,
  otp: string | undefined,
) {
  if (!needsFactor(service, account)) return 'password';
  const methods =
    otp === undefined ? null : await service.checkCode?.(service, request, account, otp);
  return methods ?? new Failure('second_factor_needed');
}

/** A super administrator's login, or everyone's, may need a factor that has not been set up yet. */
export function needsFactor({ portal }: IdentityService, { second_factor, super_admin }: Account) {
  const required = portal?.requireSecondFactor;
  return second_factor || required === 'all' || (required === 'super_admin' && super_admin);
}

/** After `checkPassword`. @param methods that proved the login */
export async function startSession(
  service: IdentityService,
  request: RequestInfo,
  account: Account,
  password: string,
  methods: string,
) {
  let current = account;
  for (let check = 1; ; check += 1) {
    const session = await insertLogin(service, request, current, 'password', methods);
    if (session) {
      await upgradeHash(service, current, password);
      return session;
    }
    if (check === MAX_CHECKS) return new Failure('invalid_credentials');
    // The account has changed, perhaps only the hash, which a concurrent login may have renewed.
    const checked = await checkPassword(service, request, null, account.username, password);
    if (checked instanceof Failure) return checked;
    // A user who has become an administrator may need a factor now.
    if (methods === 'password' && needsFactor(service, checked)) {
      return new Failure('second_factor_needed');
    }
    current = checked;
  }
}

export type LoginProof = 'password' | 'passkey' | 'link';

/** Who has proved to be the user of this account. */
export const actorBy = ({ id }: Account, request: RequestInfo, via: LoginProof = 'password') => ({
  ...actorOf(null, request),
  via,
  userId: id,
});

/**
 * A right password without a session yet. If the sign-in ends here, nothing else shows that the
 * password may be stolen (ASVS 6.3.5).
 */
export const auditPendingLogin = (
  { database }: IdentityService,
  account: Account,
  request: RequestInfo,
  detail: string,
) =>
  auditEvent(
    database,
    { event: 'login.pending', actor: actorBy(account, request), detail },
    account.id,
  );

/** @returns null if the account has changed since it was checked */
export async function insertLogin(
  service: IdentityService,
  request: RequestInfo,
  account: Account,
  via: LoginProof,
  methods: string,
) {
  const session = createSession(service, request, methods);
  const actor = actorBy(account, request, via);
  const throttle = await loginThrottle(service, request, accountKey(account.username), account);
  // A link takes the place of the password.
  const detail = methods.replace('password', via);
  const entry = { event: 'login.succeeded', actor, detail } as const;
  const isInserted = await insertSession(service.database, entry, session, account, throttle);
  return isInserted ? session : null;
}

/** The issued token counts as known to the network, so that its checks are never limited. */
function createSession(service: IdentityService, request: RequestInfo, methods: string) {
  const token = createSessionToken();
  const { address, headers, network } = request;
  service.acceptCredential(network, sha256(token).toString('hex'));
  return {
    id: randomUUID(),
    token,
    seconds: service.sessionSeconds,
    methods,
    ip: address,
    userAgent: headers['user-agent']?.slice(0, MAX_USER_AGENT) ?? null,
  };
}

/**
 * Replaces a hash that has another cost than the setting. Only a login has the password for this.
 */
async function upgradeHash(
  service: IdentityService,
  { id, password_hash }: Account,
  password: string,
) {
  if (!needsRehash(password_hash ?? '', service.passwords.cost)) return;
  try {
    await replaceHash(service.database, id, password_hash, await hashOf(password, service));
  } catch (error) {
    // The login has succeeded. The next one tries again.
    service.log.warn('password hash not renewed', describeError(error));
  }
}

export const passwordChangeSchema = object({
  message: text(),
  status: oneOf('CHANGED'),
  session: text({ description: 'The token of a new session; all earlier sessions have ended' }),
});

const WRONG_CURRENT = new Failure('invalid_credentials', {
  message: 'The current password is wrong or has expired.',
});

export const SAME_PASSWORD = 'must differ from the current password';

type PasswordChange = { current_password: string; new_password: string };

/**
 * One's own password (ASVS 6.2.3). All sessions of the user end; the reply has the token of a new
 * one (ASVS 7.2.4).
 */
export async function changePassword(
  { body, caller, request }: IdentityCall<unknown, unknown, PasswordChange>,
  service: IdentityService,
) {
  const { user } = caller;
  const { current_password, new_password } = body;
  const refused = refusalOf(caller, 'change own password', user?.id);
  if (refused) return refused;
  if (!user) return forbidden(caller);
  // Before the current password is checked, so that a rejected new one counts no failure.
  const isSame = normalizePassword(new_password) === normalizePassword(current_password);
  const problem = isSame ? SAME_PASSWORD : passwordError(new_password, service.passwords, user);
  if (problem !== null) return invalid('/new_password', problem);
  for (let check = 1; check <= MAX_CHECKS; check += 1) {
    const account = await checkPassword(service, request, caller, user.username, current_password);
    if (account instanceof Failure) {
      return account.code === 'too_many_requests' ? account : WRONG_CURRENT;
    }
    // Another user may have this name by now.
    if (account.id !== user.id) return WRONG_CURRENT;
    const hash = await hashOf(new_password, service);
    // A copy of the caller's session gets this token.
    const { token } = createSession(service, request, '');
    const actor = actorOf(caller, request);
    const throttle = await loginThrottle(service, request, accountKey(account.username), account);
    const changed = await replacePassword(service.database, actor, account, hash, token, throttle);
    if (!changed) continue;
    const message = `Password changed. ${endedText(changed.ended_sessions)} ended.`;
    return { data: { message, status: 'CHANGED' as const, session: token } };
  }
  return WRONG_CURRENT;
}

/** Idempotent: a token that is unknown or has ended also gets 200. */
export async function logout(
  { body, request }: AnonymousCall<{ session: string }>,
  service: IdentityService,
) {
  // Looked up first: invented tokens must not cost a write.
  const session = await findSession(body.session, request, service);
  if (session instanceof Failure) return session;
  if (parseSessionToken(body.session) === null) {
    // For anything but a token, such as a session's id, a 200 would suggest that the session has
    // ended.
    return invalid('/session', 'must be the session token that login returned');
  }
  if (session && !session.revoked) {
    const actor = { ...actorOf(null, request), via: 'session' } as const;
    await logOutSession(service.database, actor, session.id);
  }
  return { data: null };
}

/**
 * The session of a token, if it is active. This is a use of the session, as each check of its token
 * is.
 */
export async function lookUpSession(
  { body, request }: AnonymousCall<{ session: string }>,
  service: IdentityService,
) {
  const session = await findSession(body.session, request, service);
  if (session instanceof Failure) return session;
  if (!session || !isActive(session))
    return new Failure('invalid_session', { credential: 'session' });
  service.lastSeen.mark(session);
  return { data: viewSession(session) };
}

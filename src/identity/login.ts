import { randomUUID } from 'node:crypto';
import { normalizePassword } from '../platform/crypto/scrypt.ts';
import { sha256Hex } from '../platform/crypto/token.ts';
import {
  type Call,
  type ErrorCode,
  Failure,
  type RequestInfo,
} from '../platform/http/route/route.ts';
import { dateTime, object, oneOf, optional, text } from '../platform/http/route/schema.ts';
import { type Account, isActive, viewSession } from './model.ts';
import { typedCode } from './names.ts';
import { type Checked, checkPassword } from './passwords.ts';
import { type Caller, type IdentityCall, invalid, ownUser } from './policy.ts';
import { passwordError } from './rules.ts';
import type { IdentityService } from './service.ts';
import { endedText, findSession } from './sessions.ts';
import { actorOf, auditEvent } from './store/audit.ts';
import { logOutSession } from './store/session-ends.ts';
import { insertSession, STAY_IDLE_SECONDS } from './store/sessions.ts';
import { replacePassword } from './store/users.ts';
import { createSessionToken, parseSessionToken } from './token.ts';
import { hashOf } from './users.ts';

type AnonymousCall<Body> = Call<null, unknown, unknown, Body>;

/** Longer than any browser's; the rest would only fill the table. */
const MAX_USER_AGENT = 256;

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
  }: AnonymousCall<{ username: string; password: string; otp: string | null | undefined }>,
  service: IdentityService,
) {
  const checked = await checkPassword(service, request, null, username, password);
  if (checked instanceof Failure) return checked;
  const { account } = checked;
  const methods = await methodsOf(service, request, account, typedCode(otp ?? ''));
  if (methods instanceof Failure) {
    // If the sign-in ends here, nothing else shows that the password may be stolen (ASVS 6.3.5).
    const detail = 'second factor needed';
    const entry = { event: 'login.pending', actor: actorBy(account, request), detail } as const;
    await auditEvent(service.database, entry, account.id);
    return methods;
  }
  const session = await logInWithPassword(service, request, checked, password, methods);
  if (session instanceof Failure) return session;
  const password_expires_at = account.password_expires_at?.toISOString();
  return { data: { session: session.token, password_expires_at } };
}

/** `start.ts` says so in the log, too. */
const CODES_OFF = new Failure('key_unknown', {
  message:
    'No code can be checked: the operator has turned second factors off. Ask the operator to set IDENTITY_SECRET.',
});

/**
 * @param code empty for none
 * @returns how a login after the right password is proved, or why the code was not accepted
 */
async function methodsOf(
  service: IdentityService,
  request: RequestInfo,
  account: Account,
  code: string,
) {
  if (!needsFactor(service, account)) return 'password';
  if (code === '') return new Failure('second_factor_needed');
  return service.checkCode?.(service, request, account, code) ?? CODES_OFF;
}

/** A super administrator's login, or everyone's, may need a factor that has not been set up yet. */
export function needsFactor({ portal }: IdentityService, { second_factor, super_admin }: Account) {
  const required = portal?.requireSecondFactor;
  return second_factor || required === 'all' || (required === 'super_admin' && super_admin);
}

/** After `checkPassword`. @param methods that proved the login */
export async function logInWithPassword(
  service: IdentityService,
  request: RequestInfo,
  first: Checked,
  password: string,
  methods: string,
  stays = false,
) {
  const checkAgain = async () => {
    const again = await checkPassword(service, request, null, first.account.username, password);
    if (again instanceof Failure || methods !== 'password') return again;
    // A user who has become an administrator may need a factor now.
    return needsFactor(service, again.account) ? new Failure('second_factor_needed') : again;
  };
  const session = await unlessChanged(first, checkAgain, (checked) =>
    logIn(service, request, checked, 'password', methods, stays),
  );
  return session ?? new Failure('invalid_credentials');
}

/**
 * Work with a checked account. If the account has changed since, perhaps only the hash, which a
 * concurrent login may have renewed, it is checked and tried once more.
 * @param work returns null for a changed account
 */
async function unlessChanged<T, Code extends ErrorCode>(
  first: Checked,
  checkAgain: () => Promise<Checked | Failure<Code>>,
  work: (checked: Checked) => Promise<T | null>,
) {
  const done = await work(first);
  if (done !== null) return done;
  const again = await checkAgain();
  return again instanceof Failure ? again : work(again);
}

export type LoginProof = 'password' | 'passkey' | 'link';

/** Who has proved to be the user of this account. */
export const actorBy = ({ id }: Account, request: RequestInfo, via: LoginProof = 'password') => ({
  ...actorOf(null, request),
  via,
  userId: id,
});

/** @returns the new session; null if the account has changed since it was checked */
export async function logIn(
  service: IdentityService,
  request: RequestInfo,
  { account, throttle }: Checked,
  via: LoginProof,
  methods: string,
  stays = false,
) {
  const session = newSession(service, request, methods, stays);
  const actor = actorBy(account, request, via);
  // A link takes the place of the password.
  const detail = methods.replace('password', via);
  const entry = { event: 'login.succeeded', actor, detail } as const;
  const isInserted = await insertSession(service.database, entry, session, account, throttle);
  return isInserted ? session : null;
}

/** The issued token counts as known to the network, so that its checks are never limited. */
function newSession(
  service: IdentityService,
  request: RequestInfo,
  methods: string,
  stays = false,
) {
  const token = createSessionToken();
  const { address, headers, network } = request;
  service.acceptCredential(network, sha256Hex(token));
  return {
    id: randomUUID(),
    token,
    seconds: stays ? STAY_IDLE_SECONDS : service.sessionSeconds,
    staySeconds: stays ? (service.portal?.staySeconds ?? null) : null,
    methods,
    ip: address,
    userAgent: headers['user-agent']?.slice(0, MAX_USER_AGENT) ?? null,
  };
}

export const passwordChangeSchema = object({
  message: text(),
  status: oneOf('CHANGED'),
  session: text({ description: 'The token of a new session; all earlier sessions have ended' }),
});

const WRONG_CURRENT = new Failure('invalid_credentials', {
  message: 'The current password is wrong or has expired.',
});

/** The password of a caller, who is this user, as it is now. */
export async function checkOwnPassword(
  service: IdentityService,
  request: RequestInfo,
  caller: Caller,
  user: Pick<Account, 'id' | 'username'>,
  password: string,
) {
  const checked = await checkPassword(service, request, caller, user.username, password);
  if (checked instanceof Failure) {
    return checked.code === 'too_many_requests' ? checked : WRONG_CURRENT;
  }
  // Another user may have this name by now.
  return checked.account.id === user.id ? checked : WRONG_CURRENT;
}

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
  const { current_password, new_password } = body;
  const user = ownUser(caller, 'change own password');
  if (user instanceof Failure) return user;
  // Before the current password is checked, so that a rejected new one counts no failure.
  const isSame = normalizePassword(new_password) === normalizePassword(current_password);
  const problem = isSame ? SAME_PASSWORD : passwordError(new_password, service.passwords, user);
  if (problem !== null) return invalid('/new_password', problem);
  const check = () => checkOwnPassword(service, request, caller, user, current_password);
  const first = await check();
  if (first instanceof Failure) return first;
  const actor = actorOf(caller, request);
  // A copy of the caller's session gets this token.
  const { token } = newSession(service, request, '');
  const changed = await unlessChanged(first, check, async ({ account, throttle }) => {
    const hash = await hashOf(new_password, service);
    return replacePassword(service.database, actor, account, hash, token, throttle);
  });
  if (changed === null) return WRONG_CURRENT;
  if (changed instanceof Failure) return changed;
  const message = `Password changed. ${endedText(changed.ended_sessions)} ended.`;
  return { data: { message, status: 'CHANGED' as const, session: token } };
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

import { setTimeout as sleep } from 'node:timers/promises';
import {
  createKdfParams,
  MALFORMED,
  prefixOf,
  type ScryptCost,
  stretch,
} from '../platform/crypto/scrypt.ts';
import { unpadded } from '../platform/crypto/text.ts';
import { equalDigests } from '../platform/crypto/token.ts';
import { readThrottle, throttleKey } from '../platform/db/throttle.ts';
import { Failure, type RequestInfo } from '../platform/http/route/route.ts';
import { describeError, Overloaded } from '../platform/runtime/errors.ts';
import { isImported, verifyImported } from './imported-hashes.ts';
import { type Account, mayLogIn } from './model.ts';
import { accountKey } from './names.ts';
import type { Caller } from './policy.ts';
import { SCHEMA } from './migrations.ts';
import type { IdentityService } from './service.ts';
import { actorOf, type AuditEntry } from './store/audit.ts';
import { auditFailedLogin, type LoginThrottle } from './store/failures.ts';
import { findImportedHash, replaceHash } from './store/hashes.ts';
import { findAccount } from './store/users.ts';

const HOUR_SECONDS = 3_600;
/** Without a delay, a flood of throttled attempts would take the whole processor. */
const DELAY_MS = 500;

/**
 * Failures count alike for a name that exists and one that does not: an account that is made,
 * renamed or deleted changes no answer. Names and networks are stored only as keyed digests.
 * @param name by its `accountKey`
 */
export function loginLimits(secret: Buffer, name: string, network: string) {
  const key = (...parts: string[]) => throttleKey(secret, parts);
  return {
    pair: {
      key: key('pair', name, network),
      mode: 'consecutive',
      attempts: 5,
      seconds: 12 * HOUR_SECONDS,
    },
    account: { key: key('account', name), mode: 'window', attempts: 100, seconds: HOUR_SECONDS },
    network: {
      key: key('network', network),
      mode: 'window',
      attempts: 1_000,
      seconds: HOUR_SECONDS,
    },
  } as const;
}

/**
 * By username or e-mail address, the failures of an account are the same. Networks are known to it
 * by its id: a rename keeps them, and the next user of the name does not inherit them.
 * @param typed the `accountKey` of a name that nobody has
 */
export async function loginThrottle(
  service: IdentityService,
  { network }: RequestInfo,
  account: Account | null,
  typed = '',
): Promise<LoginThrottle> {
  const secret = await service.throttleSecret();
  const name = account ? accountKey(account.username) : typed;
  const key = throttleKey(secret, ['known', account?.id ?? '', network]);
  return { ...loginLimits(secret, name, network), known: { key, mode: 'known' } };
}

/** An account, null if there is none of this name, and whether an attempt at it must wait. */
async function lookUp(service: IdentityService, request: RequestInfo, name: string) {
  const { database } = service;
  const account = await findAccount(database, name);
  const throttle = await loginThrottle(service, request, account, name);
  const { wait, known } = await readThrottle(database, SCHEMA.name, Object.values(throttle));
  return { account, name, throttle, wait, known };
}

/** An account whose password was right, and what a login clears. */
export type Checked = Readonly<{ account: Account; throttle: LoginThrottle }>;

/**
 * Checks the password of an account within the limits, for a login or, with a caller, for a change
 * of the password. An unknown name, a wrong password and a closed account are counted, and get the
 * same answer after the same work (ASVS 6.3.8). A throttled answer is delayed.
 * @throws Overloaded if too many passwords wait to be hashed
 */
export async function checkPassword(
  service: IdentityService,
  request: RequestInfo,
  caller: Caller | null,
  usernameOrEmail: string,
  password: string,
) {
  const name = accountKey(usernameOrEmail);
  const failure = {
    event: caller ? 'password.failed' : 'login.failed',
    actor: actorOf(caller, request),
  } as const;
  try {
    // Before the queue, so that a throttled attempt does not fill it. A network known to the
    // account has priority: otherwise attempts from other networks could fill the queue.
    const found = await lookUp(service, request, name);
    const check = async (hasWaited: boolean) => {
      // Others may have failed, and the account may have changed, while this attempt was queued.
      const current = hasWaited ? await lookUp(service, request, name) : found;
      return current.wait > 0
        ? tooMany(current.wait)
        : checkHash(service, current, password, failure);
    };
    const { wait, known } = found;
    const checked = wait > 0 ? tooMany(wait) : await service.hashing.run(check, known);
    const outcome = checked instanceof Failure ? OUTCOMES[checked.code] : 'right';
    service.countPasswordCheck([outcome]);
    if (outcome === 'throttled') await delayAnswer(service);
    return checked;
  } catch (error) {
    if (error instanceof Overloaded) await delayAnswer(service);
    throw error;
  }
}

const OUTCOMES = { invalid_credentials: 'wrong', too_many_requests: 'throttled' };

/** Beyond the limit of delayed answers, an answer is not delayed. */
const delayAnswer = ({ delayedAnswers }: IdentityService) =>
  delayedAnswers.run(() => sleep(DELAY_MS)).catch(() => {});

/** Runs in a hashing slot. A failure is counted before it is returned. */
async function checkHash(
  service: IdentityService,
  { account, name, throttle }: Awaited<ReturnType<typeof lookUp>>,
  password: string,
  failure: AuditEntry,
): Promise<Checked | Failure<keyof typeof OUTCOMES>> {
  const { database } = service;
  const hash = account?.password_hash ?? decoyHash(service.passwords.cost);
  const isRight = await verifyPassword(password, hash);
  const detail = whyRejected(account, isRight);
  if (account && detail === '') {
    return { account: await renewHash(service, account, password), throttle };
  }
  await hashAsOthers(service, hash, name, password);
  const entry = { ...failure, detail };
  const state = await auditFailedLogin(database, entry, account?.id ?? null, throttle);
  return state.was_blocked ? tooMany(state.wait) : new Failure('invalid_credentials');
}

/**
 * Replaces a hash that has another cost than the setting, or is of another program. Only a login
 * has the password for this.
 */
async function renewHash(
  { database, passwords, log }: IdentityService,
  account: Account,
  password: string,
) {
  const { id, password_hash: before } = account;
  if (!needsRehash(before ?? '', passwords.cost)) return account;
  try {
    const password_hash = await hashPassword(password, passwords.cost);
    const isRenewed = await replaceHash(database, id, before, password_hash);
    return isRenewed ? { ...account, password_hash } : account;
  } catch (error) {
    // The password is right. The next login tries again.
    log.warn('password hash not renewed', describeError(error));
    return account;
  }
}

/**
 * While there are hashes of other programs, each failure costs one of ours and one of theirs:
 * otherwise the time of the answer would tell whose account was imported, and so exists.
 */
async function hashAsOthers(
  { database, passwords }: IdentityService,
  hash: string,
  name: string,
  password: string,
) {
  // Looked up in any case: the query takes time, too.
  const imported = await findImportedHash(database, name);
  const other = isImported(hash) ? decoyHash(passwords.cost) : imported;
  if (other) await verifyPassword(password, other);
}

/** For the audit trail. The client gets the same answer for each. @returns empty if it is right */
function whyRejected(account: Account | null, isRight: boolean) {
  if (!account) return 'no such user';
  if (!account.password_hash) return 'no password';
  if (!isRight) return 'wrong password';
  if (account.password_expired) return 'password expired';
  return mayLogIn(account) ? '' : 'disabled';
}

const tooMany = (seconds: number) =>
  new Failure('too_many_requests', { retryAfterSeconds: seconds });

/** @returns a PHC string: `$scrypt$ln=15,r=8,p=3$salt$hash`, Base64 without padding */
export const hashPassword = (password: string, cost: ScryptCost) =>
  hashWith(password, createKdfParams(cost));

/**
 * Throws if the stored hash is malformed or costs too much. No password contains U+0000: HMAC, and
 * so scrypt, pads a short key with zeros, and a password with U+0000 appended would have the same
 * hash.
 */
export async function verifyPassword(password: string, stored: string) {
  if (isImported(stored)) return verifyImported(password, stored);
  // The last of the 43 characters has two bits that are 0.
  const [, kdfParams] = /^(.*)\$[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]$/.exec(stored) ?? [];
  if (kdfParams === undefined) throw new Error(MALFORMED);
  const hash = await hashWith(password, kdfParams);
  return equalDigests(Buffer.from(hash), Buffer.from(stored)) && !password.includes('\0');
}

const hashWith = async (password: string, kdfParams: string) =>
  `${kdfParams}$${unpadded(await stretch(password, kdfParams))}`;

/** Whether the hash has another cost and should be replaced at the next successful login. */
export const needsRehash = (stored: string, cost: ScryptCost) => !stored.startsWith(prefixOf(cost));

/**
 * A hash that no password matches. Verifying against it takes as long as for a real one, for names
 * without a user.
 */
export const decoyHash = (cost: ScryptCost) =>
  `${prefixOf(cost)}${'A'.repeat(22)}$${'A'.repeat(43)}`;

import { createHmac, randomBytes } from 'node:crypto';
import { fromBase64url, uuidToBytes } from '../../platform/crypto/text.ts';
import { equalDigests } from '../../platform/crypto/token.ts';
import { Failure } from '../../platform/http/route/errors.ts';
import type { RequestInfo } from '../../platform/http/route/route.ts';
import {
  boolean,
  object,
  oneOf,
  optional,
  scalar,
  type Schema,
  validate,
} from '../../platform/http/route/schema.ts';
import { type Account, mayLogIn } from '../model.ts';
import { invalid } from '../policy.ts';
import type { PortalService } from '../service.ts';
import type { SignedInUser } from '../signin/browser.ts';
import { actorOf, auditEvent } from '../store/audit.ts';
import { findUser } from '../store/users.ts';
import {
  addPasskey,
  findPasskey,
  listPasskeys,
  readClock,
  consumeChallenge,
  recordPasskeyUse,
} from '../store/signin/factors.ts';
import {
  ALGORITHMS,
  authenticatorDataIn,
  insist,
  Rejection,
  verifyRegistration,
  verifySignIn,
} from './webauthn.ts';

const bytes = scalar<Buffer>({ type: 'string' }, 'must be Base64url', (input) =>
  typeof input === 'string' && input.length <= 24_576
    ? (fromBase64url(input) ?? undefined)
    : undefined,
);
const responseMembers = { type: oneOf('public-key'), clientDataJSON: bytes };
/** `rk`: whether the device lists the passkey by itself; missing if the browser does not know. */
const registrationSchema = object({
  ...responseMembers,
  attestationObject: bytes,
  rk: optional(boolean()),
});
const signInSchema = object({
  ...responseMembers,
  id: bytes,
  authenticatorData: bytes,
  signature: bytes,
  userHandle: optional(bytes),
});

/**
 * What a challenge was made for. One for another purpose is not accepted (CVE-2026-37982 in
 * Keycloak).
 */
type Purpose = 'sign in' | 'second factor' | 'register';

const RANDOM_BYTES = 16;
const TIME_BYTES = 4;
const LIFETIME_SECONDS = 300;

/**
 * `secret`: the same for all replicas; `binding`: a token that only this browser has, or empty for
 * a browser without one.
 */
type Scope = Readonly<{
  secret: Buffer;
  purpose: Purpose;
  binding: string;
}>;

/**
 * A random challenge. It needs no row, because any client may request one. It holds its expiry, and
 * a MAC over both, its purpose, and the browser's token. The caller makes sure that it is
 * used once.
 * @param now in seconds
 */
export function createChallenge(scope: Scope, now: number) {
  const head = randomBytes(RANDOM_BYTES + TIME_BYTES);
  head.writeUInt32BE(Math.floor(now) + LIFETIME_SECONDS, RANDOM_BYTES);
  return Buffer.concat([head, macOf(scope, head)]);
}

/** @returns empty, or why the challenge is not accepted */
export function challengeError(challenge: Buffer, scope: Scope, now: number) {
  const head = challenge.subarray(0, RANDOM_BYTES + TIME_BYTES);
  const isOurs = equalDigests(challenge.subarray(head.length), macOf(scope, head));
  if (!isOurs) return 'other_challenge';
  // A challenge that is too short to be read has no MAC.
  return head.readUInt32BE(RANDOM_BYTES) >= now ? '' : 'late_challenge';
}

const macOf = ({ secret, purpose, binding }: Scope, head: Buffer) =>
  createHmac('sha256', secret)
    .update(JSON.stringify(['challenge', purpose, binding]))
    .update(head)
    .digest();

/** @returns the options of `navigator.credentials`, in JSON: binary values are Base64url */
export async function createOptions(
  { database, portal, throttleSecret }: PortalService,
  purpose: Purpose,
  binding: string,
  userId: string | null,
) {
  const secret = await throttleSecret();
  const now = await readClock(database);
  const challenge = createChallenge({ secret, purpose, binding }, now);
  // Without a right password there is no list: it would disclose which names have a passkey.
  const known = userId === null ? [] : await listPasskeys(database, userId);
  return {
    challenge: challenge.toString('base64url'),
    host: portal.host,
    ids: known.map(({ id }) => id.toString('base64url')),
    algorithms: ALGORITHMS,
  };
}

/** @param json the browser's response */
export const register = (
  service: PortalService,
  request: RequestInfo,
  caller: SignedInUser,
  name: string,
  json: string,
) =>
  orRefusal(service, request, async () => {
    const { database } = service;
    const userId = caller.user.id;
    const passkeys = await listPasskeys(database, userId);
    if (passkeys.some((one) => one.name === name)) {
      return invalid('/name', 'is the name of another passkey or security key of yours');
    }
    const { clientDataJSON, attestationObject, rk } = parse(registrationSchema, json);
    const data = authenticatorDataIn(attestationObject);
    const ceremony = await findCeremony(service, clientDataJSON, 'register', caller.token);
    insist(passkeys.length < MAX_PASSKEYS, 'limit');
    const { isUserVerified, isBackupEligible, ...credential } = verifyRegistration(
      clientDataJSON,
      data,
      ceremony,
    );
    insist(await consumeChallenge(database, ceremony.challenge), 'used_challenge');
    const passkey = {
      ...credential,
      user_id: userId,
      name,
      is_backup_eligible: isBackupEligible,
      // One that was added without a PIN stays a second step: a thief of the key could set one
      // (`uvInitialized` in WebAuthn Level 3, 7.2).
      signs_in_alone: isUserVerified && rk !== false,
    };
    const added = await addPasskey(database, actorOf(caller, request), passkey);
    insist(added !== null, 'registered');
    return null;
  });

/**
 * The passkey is of the same kind as at its registration. A response is accepted once, and not if
 * the counter shows that there may be a copy.
 * @param known whose password was right; null for a sign-in by passkey alone, which needs a
 * verified user
 * @returns the account as it was before the check, so that a factor that has since been
 * removed gives no session
 */
export const authenticate = (
  service: PortalService,
  request: RequestInfo,
  known: Account | null,
  binding: string,
  json: string,
) =>
  orRefusal(service, request, async () => {
    const { database, reportFactor } = service;
    const response = parse(signInSchema, json);
    const { id, clientDataJSON: client, authenticatorData: data, userHandle } = response;
    const purpose = known ? 'second factor' : 'sign in';
    const ceremony = await findCeremony(service, client, purpose, binding);
    const passkey = await findPasskey(database, id);
    insist(passkey !== null, 'unknown');
    const account = known ?? (await findUser(database, passkey.user_id));
    insist(account?.id === passkey.user_id && mayLogIn(account), 'other_account');
    // The authenticator names the user it made the passkey for. As a second factor, it need not.
    const isForAccount = userHandle?.length
      ? userHandle.equals(uuidToBytes(account.id))
      : known !== null;
    insist(isForAccount, 'other_user');
    try {
      const proof = verifySignIn(client, data, response.signature, passkey.spki, ceremony);
      insist(known !== null || passkey.signs_in_alone, 'second_step');
      insist(proof.isBackupEligible === passkey.is_backup_eligible, 'other_backup');
      insist(await consumeChallenge(database, ceremony.challenge), 'used_challenge');
      insist(await recordPasskeyUse(database, id, proof.counter), 'earlier_counter');
    } catch (error) {
      if (!(error instanceof Rejection)) throw error;
      reportFactor('passkey', 'wrong', account.id);
      const actor = { ...actorOf(null, request), via: 'passkey' } as const;
      await auditEvent(database, { event: 'factor.failed', actor }, account.id);
      throw error;
    }
    reportFactor('passkey', 'right', account.id);
    return account;
  });

/** @throws Rejection */
function parse<T>(schema: Schema<T>, json: string) {
  try {
    const checked = validate(schema, JSON.parse(json), 'invalid_body');
    if (!(checked instanceof Failure)) return checked;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new Rejection('malformed');
}

/**
 * @returns what the response must match, if its challenge was made for this purpose and browser
 * @throws Rejection
 */
async function findCeremony(
  { database, portal, throttleSecret }: PortalService,
  clientData: Buffer,
  purpose: Purpose,
  binding: string,
) {
  const client = parse(object({ challenge: bytes }), clientData.toString('utf8'));
  // Without a cookie, every browser without one would have the same binding.
  insist(binding !== '', 'no_cookie');
  const secret = await throttleSecret();
  const now = await readClock(database);
  const problem = challengeError(client.challenge, { secret, purpose, binding }, now);
  insist(problem === '', problem);
  const { origin, host } = portal;
  return { ...client, origin, host, needsVerification: purpose === 'sign in' };
}

// --- Why a passkey is not accepted: one word for the log, and a sentence for the person

const MAX_PASSKEYS = 20; // of a user

/** A browser without cookies cannot sign in at all. */
export const NO_COOKIES =
  'Your browser did not send the cookie of this page. Allow cookies for this address, and load the page again.';
const TOO_LATE = 'The page was open for too long, or its form was sent twice. Try again.';

/** None tells of an account more than its user knows. Other reasons share one sentence. */
const SENTENCES: ReadonlyMap<string, string> = new Map([
  [
    'malformed',
    'Your browser or password manager sent it incomplete. Update it, or use another one.',
  ],
  ['no_cookie', NO_COOKIES],
  ['late_challenge', TOO_LATE],
  ['used_challenge', TOO_LATE],
  ['other_challenge', TOO_LATE],
  ['wrong_origin', 'It was used at another address. Open this page at its own address.'],
  ['in_frame', 'This page was shown inside another one. Open it in a window of its own.'],
  [
    'user_not_verified',
    'The device did not check your fingerprint, face or PIN. Set one up on it.',
  ],
  ['unsupported_key', 'Its kind is not supported. Use another device or browser.'],
  ['limit', `You have ${MAX_PASSKEYS} passkeys and security keys. Remove one first.`],
  ['registered', 'It was added before, perhaps to another account.'],
  ['second_step', 'It is a second step. Enter your password first.'],
  ['other_backup', 'It has changed since it was added. Remove it, and add it again.'],
]);

/** Turns a rejection into the reply, and logs its reason. */
const orRefusal = <T>(service: PortalService, request: RequestInfo, work: () => Promise<T>) =>
  work().catch((error: unknown) => {
    if (!(error instanceof Rejection)) throw error;
    const { ids, route } = request;
    service.log.limited('passkey refused', { ...ids, route, reason: error.message });
    const sentence = SENTENCES.get(error.message);
    const message = `The passkey was not accepted. ${sentence}`;
    return new Failure('invalid_passkey', sentence === undefined ? {} : { message });
  });

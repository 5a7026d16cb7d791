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
import type { PortalService } from '../service.ts';
import { actorOf, auditEvent } from '../store/audit.ts';
import { findUser } from '../store/users.ts';
import {
  type Addition,
  addPasskey,
  findPasskey,
  listPasskeys,
  readClock,
  consumeChallenge,
  recordPasskeyUse,
} from '../store/signin/factors.ts';
import { ALGORITHMS, Rejection, verifyRegistration, verifySignIn } from './webauthn.ts';

const bytes = scalar<Buffer>({ type: 'string' }, 'must be Base64url', (input) =>
  typeof input === 'string' && input.length <= 24_576
    ? (fromBase64url(input) ?? undefined)
    : undefined,
);
const responseMembers = {
  id: bytes,
  type: oneOf('public-key'),
  clientDataJSON: bytes,
  authenticatorData: bytes,
};
/** `rk`: whether the device lists the passkey by itself; missing if the browser does not know. */
const registrationSchema = object({
  ...responseMembers,
  publicKey: bytes,
  rk: optional(boolean()),
});
const signInSchema = object({ ...responseMembers, signature: bytes, userHandle: optional(bytes) });

/**
 * What a challenge was made for. One for another purpose is not accepted (CVE-2026-37982 in
 * Keycloak).
 */
type Purpose = 'sign in' | 'second factor' | 'register';

const RANDOM_BYTES = 16;
const TIME_BYTES = 4;
const LIFETIME_SECONDS = 300;
const MAX_PASSKEYS = 20; // of a user

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

export function isChallengeFor(challenge: Buffer, scope: Scope, now: number) {
  const head = challenge.subarray(0, RANDOM_BYTES + TIME_BYTES);
  const isOurs = equalDigests(challenge.subarray(head.length), macOf(scope, head));
  // A challenge that is too short to be read has no MAC.
  return isOurs && head.readUInt32BE(RANDOM_BYTES) >= now;
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

/** @param json the browser's response  @returns whether the passkey was added */
export async function register(
  service: PortalService,
  to: Addition,
  binding: string,
  name: string,
  json: string,
) {
  const { database, userId } = to;
  const response = parse(registrationSchema, json);
  if (!response) return false;
  const { id, clientDataJSON: client, authenticatorData: data, publicKey, rk } = response;
  const ceremony = await findCeremony(service, client, 'register', binding);
  if (!ceremony || (await listPasskeys(database, userId)).length >= MAX_PASSKEYS) return false;
  const registered = orNull(() => verifyRegistration(client, data, publicKey, ceremony));
  if (!registered?.id.equals(id)) return false;
  if (!(await consumeChallenge(database, ceremony.challenge))) return false;
  // One that was added without a PIN stays a second step: a thief of the key could set one
  // (`uvInitialized` in WebAuthn Level 3, 7.2).
  const signsInAlone = registered.isUserVerified && rk !== false;
  const passkey = {
    id,
    user_id: userId,
    name,
    spki: registered.spki,
    counter: registered.counter,
    is_backup_eligible: registered.isBackupEligible,
    signs_in_alone: signsInAlone,
  };
  return (await addPasskey(to, passkey)) !== null;
}

/**
 * @param known whose password was right; null for a sign-in by passkey alone, which needs a
 * verified user
 * @returns the account as it was before the check, so that a factor that has since been
 * removed gives no session
 */
export async function authenticate(
  service: PortalService,
  request: RequestInfo,
  known: Account | null,
  binding: string,
  json: string,
) {
  const { database, reportFactor } = service;
  const response = parse(signInSchema, json);
  if (!response) return null;
  const { id, clientDataJSON: client, authenticatorData: data, signature, userHandle } = response;
  const purpose = known ? 'second factor' : 'sign in';
  const ceremony = await findCeremony(service, client, purpose, binding);
  if (!ceremony) return null;
  const passkey = await findPasskey(database, id);
  if (!passkey) return null;
  const account = known ?? (await findUser(database, passkey.user_id));
  if (account?.id !== passkey.user_id || !mayLogIn(account)) return null;
  // The authenticator names the user it made the passkey for. As a second factor, it need not.
  const isForAccount = userHandle ? userHandle.equals(uuidToBytes(account.id)) : known !== null;
  if (!isForAccount) return null;
  const proof = orNull(() => verifySignIn(client, data, signature, passkey.spki, ceremony));
  // The passkey is of the same kind as at its registration. A response is accepted once, and not if
  // the counter shows that there may be a copy.
  const isRight =
    proof !== null &&
    (known !== null || passkey.signs_in_alone) &&
    proof.isBackupEligible === passkey.is_backup_eligible &&
    (await consumeChallenge(database, ceremony.challenge)) &&
    (await recordPasskeyUse(database, passkey.id, proof.counter));
  reportFactor('passkey', isRight ? 'right' : 'wrong', account.id);
  if (isRight) return account;
  const actor = { ...actorOf(null, request), via: 'passkey' } as const;
  await auditEvent(database, { event: 'factor.failed', actor }, account.id);
  return null;
}

function orNull<T>(work: () => T) {
  try {
    return work();
  } catch (error) {
    if (error instanceof Rejection || error instanceof SyntaxError) return null;
    throw error;
  }
}

const parse = <T>(schema: Schema<T>, json: string) =>
  orNull(() => {
    const checked = validate(schema, JSON.parse(json), 'invalid_body');
    return checked instanceof Failure ? null : checked;
  });

/** @returns what the response must match, if its challenge was made for this purpose and browser */
async function findCeremony(
  { database, portal, throttleSecret }: PortalService,
  clientData: Buffer,
  purpose: Purpose,
  binding: string,
) {
  const client = parse(object({ challenge: bytes }), clientData.toString('utf8'));
  // Without a cookie, every browser without one would have the same binding.
  if (!client || binding === '') return null;
  const secret = await throttleSecret();
  const now = await readClock(database);
  if (!isChallengeFor(client.challenge, { secret, purpose, binding }, now)) return null;
  const { origin, host } = portal;
  return { ...client, origin, host, needsVerification: purpose === 'sign in' };
}

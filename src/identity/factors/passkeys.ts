import { createHmac, randomBytes } from 'node:crypto';
import { fromBase64url, uuidToBytes } from '../../platform/crypto/text.ts';
import { equalDigests } from '../../platform/crypto/token.ts';
import { Failure } from '../../platform/http/route/errors.ts';
import type { RequestInfo } from '../../platform/http/route/route.ts';
import {
  boolean,
  type Infer,
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
  type Passkey,
  readClock,
  consumeChallenge,
  recordPasskeyUse,
} from '../store/signin/factors.ts';
import {
  ALGORITHMS,
  authenticatorDataIn,
  type Ceremony,
  Rejection,
  verifyRegistration,
  verifySignIn,
} from './webauthn.ts';
import { insist, MAX_PASSKEYS } from './refusals.ts';

const bytes = scalar<Buffer>({ type: 'string' }, 'must be Base64url', (input) =>
  typeof input === 'string' && input.length <= 24_576
    ? (fromBase64url(input) ?? undefined)
    : undefined,
);
const responseMembers = { id: bytes, type: oneOf('public-key'), clientDataJSON: bytes };
/**
 * The attestation object, which every browser and password manager returns, or what some decode of
 * it. `rk`: whether the device lists the passkey by itself; missing if the browser does not know.
 */
const registrationSchema = object({
  ...responseMembers,
  attestationObject: optional(bytes),
  authenticatorData: optional(bytes),
  publicKey: optional(bytes),
  rk: optional(boolean()),
});
const signInSchema = object({
  ...responseMembers,
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

/** @param json the browser's response  @throws Rejection */
export async function register(
  service: PortalService,
  to: Addition,
  binding: string,
  name: string,
  json: string,
) {
  const { database, userId } = to;
  const response = parse(registrationSchema, json);
  const { id, clientDataJSON: client, attestationObject, publicKey = null, rk } = response;
  const { authenticatorData: data = authenticatorDataIn(attestationObject ?? Buffer.alloc(0)) } =
    response;
  const ceremony = await findCeremony(service, client, 'register', binding);
  insist((await listPasskeys(database, userId)).length < MAX_PASSKEYS, 'limit');
  const registered = verifyRegistration(client, data, publicKey, ceremony);
  insist(registered.id.equals(id), 'malformed');
  insist(await consumeChallenge(database, ceremony.challenge), 'used_challenge');
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
  insist((await addPasskey(to, passkey)) !== null, 'registered');
}

/**
 * @param known whose password was right; null for a sign-in by passkey alone, which needs a
 * verified user
 * @returns the account as it was before the check, so that a factor that has since been
 * removed gives no session
 * @throws Rejection
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
  const { id, clientDataJSON: client, userHandle } = response;
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
    await checkProof(service, response, passkey, ceremony, known !== null);
  } catch (error) {
    if (!(error instanceof Rejection)) throw error;
    reportFactor('passkey', 'wrong', account.id);
    const actor = { ...actorOf(null, request), via: 'passkey' } as const;
    await auditEvent(database, { event: 'factor.failed', actor }, account.id);
    throw error;
  }
  reportFactor('passkey', 'right', account.id);
  return account;
}

/**
 * The passkey is of the same kind as at its registration. A response is accepted once, and not if
 * the counter shows that there may be a copy.
 * @throws Rejection
 */
async function checkProof(
  { database }: PortalService,
  { clientDataJSON: client, authenticatorData: data, signature }: Infer<typeof signInSchema>,
  passkey: Passkey,
  ceremony: Ceremony,
  isSecondStep: boolean,
) {
  const proof = verifySignIn(client, data, signature, passkey.spki, ceremony);
  insist(isSecondStep || passkey.signs_in_alone, 'second_step');
  insist(proof.isBackupEligible === passkey.is_backup_eligible, 'other_backup');
  insist(await consumeChallenge(database, ceremony.challenge), 'used_challenge');
  insist(await recordPasskeyUse(database, passkey.id, proof.counter), 'earlier_counter');
}

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

import { createHmac, randomBytes } from 'node:crypto';
import { fromBase64url, uuidToBytes } from '../../crypto/text.ts';
import { sameDigest } from '../../crypto/token.ts';
import type { RequestInfo } from '../../http/call.ts';
import { object, oneOf, optional, scalar, type Shape, validate } from '../../http/shape.ts';
import { actorOf } from '../audit.ts';
import { type Account, mayLogIn } from '../model.ts';
import type { PortalService } from '../service.ts';
import { findUser } from '../store/users.ts';
import {
  type Addition,
  addPasskey,
  findPasskey,
  listPasskeys,
  noteFailure,
  readClock,
  useChallenge,
  usePasskey,
} from './store.ts';
import {
  ALGORITHMS,
  type Ceremony,
  Rejection,
  verifyRegistration,
  verifySignIn,
} from './webauthn.ts';

const bytes = scalar<Buffer>({ type: 'string' }, 'must be Base64url', (input) =>
  typeof input === 'string' && input.length <= 24_576
    ? (fromBase64url(input) ?? undefined)
    : undefined,
);
const credential = { id: bytes, type: oneOf('public-key'), clientDataJSON: bytes };
const registrationShape = object({ ...credential, attestationObject: bytes });
const signInShape = object({
  ...credential,
  authenticatorData: bytes,
  signature: bytes,
  userHandle: optional(bytes),
});

/** What a challenge was made for. One for another purpose is not accepted (CVE-2026-37982 in Keycloak). */
type Purpose = 'sign in' | 'second factor' | 'register';

const [RANDOM_BYTES, TIME_BYTES, LIFETIME_SECONDS] = [16, 4, 300];

/**
 * A random challenge. It needs no row, because any client may request one. It holds its expiry, and a MAC over the
 * expiry, its purpose, and the browser's cookie. The caller makes sure that it is used once.
 * @param secret the same for all replicas  @param binding a token that only this browser has  @param now in seconds
 */
export function createChallenge(
  secret: Buffer,
  purpose: Purpose,
  binding: string,
  now: number,
): Buffer {
  const head = randomBytes(RANDOM_BYTES + TIME_BYTES);
  head.writeUInt32BE(Math.floor(now) + LIFETIME_SECONDS, RANDOM_BYTES);
  return Buffer.concat([head, macOf(secret, purpose, binding, head)]);
}

export function isChallengeFor(
  challenge: Buffer,
  secret: Buffer,
  purpose: Purpose,
  binding: string,
  now: number,
) {
  const head = challenge.subarray(0, RANDOM_BYTES + TIME_BYTES);
  const isOurs = sameDigest(challenge.subarray(head.length), macOf(secret, purpose, binding, head));
  return isOurs && head.readUInt32BE(RANDOM_BYTES) >= now; // no short head has a MAC
}

const macOf = (secret: Buffer, purpose: Purpose, binding: string, head: Buffer): Buffer =>
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
  const challenge = createChallenge(
    await throttleSecret(),
    purpose,
    binding,
    await readClock(database),
  );
  // Without a right password there is no list: it would disclose which names have a passkey.
  const known = userId === null ? [] : await listPasskeys(database, userId);
  const ids = known.map(({ id }) => id.toString('base64url'));
  return {
    challenge: challenge.toString('base64url'),
    host: portal.host,
    ids,
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
  const response = parse(registrationShape, json);
  const ceremony =
    response && (await ceremonyOf(service, response.clientDataJSON, 'register', binding));
  if (!ceremony || (await listPasskeys(to.database, to.userId)).length >= 20) return false;
  const registered = orNull(() =>
    verifyRegistration(response.clientDataJSON, response.attestationObject, ceremony),
  );
  if (!registered?.id.equals(response.id) || !(await useChallenge(to.database, ceremony.challenge)))
    return false;
  return (await addPasskey(to, name, registered)) !== null;
}

/**
 * @param known whose password was right; null for a sign-in by passkey alone, which needs a verified user
 * @returns the account as it was before the check, so that a factor that was removed meanwhile gives no session
 */
export async function authenticate(
  service: PortalService,
  request: RequestInfo,
  known: Account | null,
  binding: string,
  json: string,
): Promise<Account | null> {
  const { database, reportFactor } = service;
  const response = parse(signInShape, json);
  const purpose = known ? 'second factor' : 'sign in';
  const ceremony =
    response && (await ceremonyOf(service, response.clientDataJSON, purpose, binding));
  const passkey = ceremony && (await findPasskey(database, response.id));
  const account = known ?? (passkey && (await findUser(database, passkey.user_id)));
  if (!passkey || passkey.user_id !== account?.id || !mayLogIn(account)) return null;
  // The authenticator names the user it made the passkey for.
  const { clientDataJSON: client, authenticatorData: data, signature, userHandle } = response;
  if (userHandle ? !userHandle.equals(uuidToBytes(account.id)) : !known) return null;
  const proof = orNull(() => verifySignIn(client, data, signature, passkey, ceremony));
  const isRight =
    proof?.isBackupEligible === passkey.is_backup_eligible &&
    (await useChallenge(database, ceremony.challenge)) &&
    (await usePasskey(database, passkey.id, proof.counter));
  reportFactor('passkey', isRight ? 'right' : 'wrong', account.id);
  if (isRight) return account;
  await noteFailure(database, { ...actorOf(null, request), via: 'passkey' }, account.id);
  return null;
}

function orNull<T>(work: () => T): T | null {
  try {
    return work();
  } catch (error) {
    if (error instanceof Rejection || error instanceof SyntaxError) return null;
    throw error;
  }
}

const parse = <T>(shape: Shape<T>, json: string): T | null =>
  orNull(() => {
    const checked = validate(shape, JSON.parse(json), '');
    return checked.ok ? checked.value : null;
  });

/** @returns what the response must match, if its challenge was made for this purpose and browser */
async function ceremonyOf(
  { database, portal, throttleSecret }: PortalService,
  clientData: Buffer,
  purpose: Purpose,
  binding: string,
): Promise<Ceremony | null> {
  const client = parse(object({ challenge: bytes }), clientData.toString('utf8'));
  const [secret, now] = [await throttleSecret(), await readClock(database)];
  // Without a cookie, every browser without one would have the same binding.
  if (!client || binding === '' || !isChallengeFor(client.challenge, secret, purpose, binding, now))
    return null;
  const { origin, host } = portal;
  return { ...client, origin, host, needsVerification: purpose === 'sign in' };
}

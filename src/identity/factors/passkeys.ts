import { fromBase64url, uuidToBytes } from '../../crypto/text.ts';
import { digest } from '../../crypto/token.ts';
import { Failure } from '../../http/errors.ts';
import { object, oneOf, optional, text, validate } from '../../http/shape.ts';
import type { PortalService } from '../service.ts';
import type { Actor } from '../store/audit.ts';
import { createChallenge, isChallengeFor, type Purpose } from './challenge.ts';
import { addPasskey, findPasskey, listPasskeys, noteFailure, readClock, usePasskey } from './store.ts';
import { ALGORITHMS, type Ceremony, Rejection, verifyRegistration, verifySignIn } from './webauthn.ts';

const MAX_PASSKEYS = 20;
const base64url = text({ max: 24_576, check: (value) => (fromBase64url(value) ? null : 'must be Base64url') });

const bytesOf = (value: string): Buffer => fromBase64url(value) ?? Buffer.alloc(0);

const credential = { id: base64url, type: oneOf('public-key') };
const registrationShape = object({ ...credential, clientDataJSON: base64url, attestationObject: base64url });
const signInShape = object({
  ...credential, clientDataJSON: base64url, authenticatorData: base64url, signature: base64url,
  userHandle: optional(base64url),
});

const REJECTED = new Failure('invalid_passkey');

/** @returns the options of `navigator.credentials`, in JSON: binary values are Base64url */
export async function createOptions(
  service: PortalService, purpose: Purpose, binding: string, userId: string | null,
) {
  const { database, throttleSecret } = service;
  const challenge = createChallenge(await throttleSecret(), purpose, binding, await readClock(database));
  // Without a right password there is no list: it would tell which names have a passkey.
  const known = userId === null ? [] : await listPasskeys(database, userId);
  const ids = known.map(({ id }) => id.toString('base64url'));
  const host = new URL(service.portal.origin).hostname;
  return { challenge: challenge.toString('base64url'), host, ids, algorithms: ALGORITHMS };
}

/** @returns whether the passkey was added */
export async function register(
  service: PortalService, actor: Actor, userId: string, binding: string, name: string, json: string,
): Promise<true | typeof REJECTED> {
  const response = parse(registrationShape, json);
  const challenge = response && (await checkChallenge(service, response.clientDataJSON, 'register', binding));
  if (!response || !challenge || (await listPasskeys(service.database, userId)).length >= MAX_PASSKEYS) return REJECTED;
  const ceremony = ceremonyOf(service, challenge, false);
  const [clientData, attestation] = [bytesOf(response.clientDataJSON), bytesOf(response.attestationObject)];
  const registered = verifyRegistration(clientData, attestation, ceremony);
  if (registered instanceof Rejection || !registered.id.equals(bytesOf(response.id))) return REJECTED;
  const added = await addPasskey(service.database, actor, userId, name, registered, digest(challenge.toString('hex')));
  return added || REJECTED;
}

/** @param userId whose password was right; null for a sign-in by passkey alone, which needs a verified user */
export async function authenticate(
  service: PortalService, actor: Actor, userId: string | null, binding: string, json: string,
): Promise<{ readonly userId: string } | typeof REJECTED> {
  const { database } = service;
  const response = parse(signInShape, json);
  const purpose = userId === null ? 'sign in' : 'second factor';
  const challenge = response && (await checkChallenge(service, response.clientDataJSON, purpose, binding));
  const passkey = challenge && (await findPasskey(database, bytesOf(response.id)));
  if (!response || !challenge || !passkey || (userId !== null && passkey.user_id !== userId)) return REJECTED;
  // The authenticator names the user it made the passkey for.
  const handle = response.userHandle === undefined ? null : bytesOf(response.userHandle);
  if (handle ? !handle.equals(uuidToBytes(passkey.user_id)) : userId === null) return REJECTED;
  const proof = verifySignIn(
    bytesOf(response.clientDataJSON), bytesOf(response.authenticatorData), bytesOf(response.signature), passkey,
    ceremonyOf(service, challenge, userId === null),
  );
  const isGood = !(proof instanceof Rejection) && proof.isBackupEligible === passkey.is_backup_eligible
    && (await usePasskey(database, passkey.id, proof.counter, digest(challenge.toString('hex'))));
  if (isGood) return { userId: passkey.user_id };
  await noteFailure(database, actor, passkey.user_id);
  return REJECTED;
}

const ceremonyOf = ({ portal: { origin } }: PortalService, challenge: Buffer, needsVerification: boolean): Ceremony =>
  ({ challenge, origin, host: new URL(origin).hostname, needsVerification });

function parse<T>(shape: Parameters<typeof validate<T>>[0], json: string): T | null {
  try {
    const checked = validate(shape, JSON.parse(json), '');
    return checked.ok ? checked.value : null;
  } catch {
    return null;
  }
}

/** @returns the challenge that the client data holds, if it was made for this purpose and browser */
async function checkChallenge(
  { database, throttleSecret }: PortalService, clientData: string, purpose: Purpose, binding: string,
): Promise<Buffer | null> {
  const client = parse(object({ challenge: base64url }), bytesOf(clientData).toString('utf8'));
  const challenge = client && bytesOf(client.challenge);
  const [secret, now] = [await throttleSecret(), await readClock(database)];
  return challenge && isChallengeFor(challenge, secret, purpose, binding, now) ? challenge : null;
}

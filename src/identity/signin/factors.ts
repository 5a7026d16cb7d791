import { openSecret, sealSecret } from '../../crypto/sealed.ts';
import { uuidToBytes } from '../../crypto/text.ts';
import type { Call } from '../../http/call.ts';
import { Failure, type TextReply } from '../../http/errors.ts';
import { actorOf } from '../audit.ts';
import { createTotpKey } from '../factors/check.ts';
import { createOptions, register } from '../factors/passkeys.ts';
import { createRecoveryCodes, recoveryDigest } from '../factors/recovery.ts';
import * as store from '../factors/store.ts';
import { createTotpSecret, findTotpStep, totpUri } from '../factors/totp.ts';
import { cookieOf } from '../guard.ts';
import type { User } from '../model.ts';
import type { Caller } from '../policy.ts';
import type { PortalService } from '../service.ts';
import type { Actor } from '../store/audit.ts';
import { HOST_COOKIE, returnAddress } from './browser.ts';
import { codesPage, type Cookies, enrolPage, factorsPage, messageOf } from './pages.ts';
import { findProof } from './store.ts';

const MAX_AGE_SECONDS = 600;

export type Visit<Body = unknown, Query = unknown> = Call<Caller, unknown, Query, Body>;

/** A session always has a user. */
export function userOf({ user }: Caller): User {
  if (!user) throw new Error('internal error: a session has a user');
  return user;
}

/** Sensitive changes ask the person to sign in again (ASVS 7.5.1). @returns null if that was just now */
export async function signInAgain({ session }: Caller, service: PortalService, path: string) {
  const proof = session && (await findProof(service, session.id));
  if (proof && proof.age <= MAX_AGE_SECONDS) return null;
  const returnTo = encodeURIComponent(service.portal.origin + path);
  return new Failure('signin_needed', { headers: { Location: `/login?again=on&return_to=${returnTo}` } });
}

const PATH = '/account/factors';

/** `return_to`: the address that asked for a second factor. */
type Onward = Readonly<{ return_to: string }>;

export const showFactors = ({ caller, query }: Visit<unknown, Onward>, service: PortalService) =>
  factors(caller, service, null, query.return_to);

async function factors(caller: Caller, service: PortalService, message: string | null, returnTo = '') {
  const query = returnTo === '' ? '' : `?${new URLSearchParams({ return_to: returnTo })}`;
  const again = await signInAgain(caller, service, PATH + query);
  if (again) return again;
  const [{ id }, { database }] = [userOf(caller), service];
  const [totp, passkeys, codes] = await Promise.all([
    store.findTotp(database, id), store.listPasskeys(database, id), store.countRecoveryCodes(database, id),
  ]);
  const [hasTotp, canTotp] = [totp?.confirmed ?? false, service.portal.secret !== null];
  return factorsPage({ hasTotp, canTotp, passkeys, codes, returnTo, message });
}

/** Shows a new secret. It counts only after its first right code. */
export async function startTotp({ caller, body }: Visit<Onward>, service: PortalService) {
  const again = await signInAgain(caller, service, PATH);
  const form = { action: '/account/totp', returnTo: body.return_to, message: null };
  return again ?? offerTotp(userOf(caller), service, form);
}

/** `action`: where the form with the first code goes. */
type Form = Readonly<{ action: string; returnTo: string; message: string | null }>;

export async function offerTotp(
  user: Pick<User, 'id' | 'username'>, service: PortalService, form: Form, cookies: Cookies = [],
): Promise<TextReply> {
  if (service.portal.secret === null) throw new Error('internal error: TOTP needs IDENTITY_SECRET');
  const key = createTotpKey(service.portal.secret);
  const known = await store.findTotp(service.database, user.id);
  // The same secret again after a wrong code, because the app has it already.
  const isRepeated = form.message !== null && known !== null && !known.confirmed;
  const sealed = isRepeated ? openSecret([key], known) : null;
  const secret = sealed === null ? createTotpSecret() : Buffer.from(sealed, 'base64');
  const box = sealSecret(key, secret.toString('base64'), user.id);
  if (form.message === null) await store.saveTotp(service.database, user.id, box);
  const uri = totpUri(secret, new URL(service.portal.origin).hostname, user.username);
  return enrolPage({ ...form, secret, uri }, cookies);
}

/** @returns the new recovery codes, or a failure if the code is wrong */
export async function confirmTotp(
  service: PortalService, actor: Actor, userId: string, code: string,
): Promise<readonly string[] | Failure<'invalid_code'>> {
  const { database, portal } = service;
  const totp = await store.findTotp(database, userId);
  const isWaiting = totp !== null && !totp.confirmed && portal.secret !== null;
  const secret = isWaiting ? openSecret([createTotpKey(portal.secret)], totp) : null;
  const step = secret && totp && findTotpStep(Buffer.from(secret, 'base64'), code.replace(/\s/g, ''), totp.now);
  const isConfirmed = totp && step && (await store.confirmTotp(database, actor, userId, totp.id, step));
  if (!isConfirmed) return new Failure('invalid_code');
  return renewCodes(service, actor, userId);
}

async function renewCodes({ database }: PortalService, actor: Actor, userId: string): Promise<readonly string[]> {
  const codes = createRecoveryCodes();
  await store.replaceRecoveryCodes(database, actor, userId, codes.flatMap((code) => recoveryDigest(code) ?? []));
  return codes;
}

export async function finishTotp(
  { caller, body, request }: Visit<Onward & { readonly code: string }>, service: PortalService,
) {
  const user = userOf(caller);
  const codes = await confirmTotp(service, actorOf(caller, request), user.id, body.code);
  if (!(codes instanceof Failure)) return codesPage(codes, next(body, service), []);
  const form = { action: '/account/totp', returnTo: body.return_to, message: messageOf(codes) };
  const page = await offerTotp(user, service, form);
  return new Failure(codes.code, { page });
}

const next = ({ return_to: returnTo }: Onward, { portal }: PortalService): string =>
  returnAddress(returnTo, portal) ?? PATH;

export async function newCodes({ caller, request }: Visit, service: PortalService) {
  const again = await signInAgain(caller, service, PATH);
  return again ?? codesPage(await renewCodes(service, actorOf(caller, request), userOf(caller).id), PATH, []);
}

/** Options for `navigator.credentials.create`. */
export async function passkeyOptions({ caller, request }: Visit, service: PortalService) {
  const user = userOf(caller);
  const binding = cookieOf(request.headers, HOST_COOKIE) ?? '';
  const options = await createOptions(service, 'register', binding, user.id);
  return { data: { ...options, user: { id: uuidToBytes(user.id).toString('base64url'), name: user.username } } };
}

export async function addPasskey(
  { caller, body, request }: Visit<Onward & { readonly name: string; readonly credential: string }>,
  service: PortalService,
) {
  const again = await signInAgain(caller, service, PATH);
  if (again) return again;
  const [user, binding] = [userOf(caller), cookieOf(request.headers, HOST_COOKIE) ?? ''];
  const actor = actorOf(caller, request);
  const added = await register(service, actor, user.id, binding, body.name, body.credential);
  if (added instanceof Failure) return factors(caller, service, messageOf(added), body.return_to);
  const hasCodes = (await store.countRecoveryCodes(service.database, user.id)) > 0;
  if (hasCodes) return factors(caller, service, null);
  return codesPage(await renewCodes(service, actor, user.id), next(body, service), []);
}

export async function removeFactor(
  { caller, body, request }: Visit<{ passkey: string | undefined }>, service: PortalService,
) {
  const again = await signInAgain(caller, service, PATH);
  if (again) return again;
  const what = body.passkey === undefined ? 'totp' : { passkey: Buffer.from(body.passkey, 'base64url') };
  await store.removeFactors(service.database, actorOf(caller, request), userOf(caller).id, what, false);
  return factors(caller, service, null);
}

import { sealSecret } from '../../crypto/sealed.ts';
import { uuidToBytes } from '../../crypto/text.ts';
import { Failure } from '../../http/errors.ts';
import { optional, text } from '../../http/shape.ts';
import { NOTHING } from '../../http/template.ts';
import { actorOf } from '../audit.ts';
import {
  base32,
  createRecoveryCodes,
  createTotpKey,
  enrolmentSecret,
  findTotpStep,
  recoveryDigest,
  totpUri,
} from '../factors/codes.ts';
import { createOptions, register } from '../factors/passkeys.ts';
import * as store from '../factors/store.ts';
import type { PortalService } from '../service.ts';
import type { Actor } from '../store/audit.ts';
import { createTokens, returnAddress, setCookies } from './browser.ts';
import type { Person, Visit } from './guards.ts';
import { again, code, codesPage, formOf, label, page, render, return_to, utc } from './pages.ts';

/** The encoder is shared with pages that make codes in the browser. */
const { qrPicture }: { qrPicture(text: string): { size: number; path: string } | null } =
  await import(new URL('../../http/pages/qr.js', import.meta.url).href);

const PATH = '/account/factors';
/** `return_to`: the address that asked for a second factor. */
type Onward = Readonly<{ return_to: string }>;
const next = (returnTo: string, { portal }: PortalService): string =>
  returnAddress(returnTo, portal) ?? PATH;

export async function showFactors(
  { caller: { user }, query: { return_to } }: Visit<unknown, Onward>,
  { database, portal }: PortalService,
  message = '',
  cookies: string[] = [],
) {
  const [totp, passkeys, codes] = await Promise.all([
    store.findTotp(database, user.id),
    store.listPasskeys(database, user.id),
    store.countRecoveryCodes(database, user.id),
  ]);
  const state = totp ? 'used' : portal.secrets.length > 0 ? 'offered' : 'missing';
  const items = passkeys.map(({ id, name, created_at, last_used_at, is_backup_eligible }) => {
    const used = last_used_at ? `last used ${utc(last_used_at)}` : 'never used';
    const about = `added ${utc(created_at)}, ${used}, ${is_backup_eligible ? 'synchronized' : 'on one device'}`;
    return render('passkey-item', { name, about, id: id.toString('base64url') });
  });
  return page(
    'Second factors',
    render('factors', {
      others: render('others'),
      totp: render(`totp-${state}`, { return_to }),
      return_to,
      passkeys: items,
      codes,
      renew: totp || passkeys.length > 0 ? render('renew') : NOTHING,
    }),
    message,
    cookies,
    render('script'),
  );
}

/** Who sets up an app. */
type Enrolling = Pick<Person, 'user' | 'token'>;

function secretOf({ portal }: PortalService, { user, token }: Enrolling): Buffer {
  const [current] = portal.secrets;
  if (current === undefined) throw new Error('internal error: TOTP needs IDENTITY_SECRET');
  return enrolmentSecret(current, [user.id, token, user.updated_at]);
}

/** @param action where the form with the first code goes */
export function offerTotp(
  service: PortalService,
  person: Enrolling,
  { action, return_to }: Onward & { readonly action: string },
  message: string,
  cookies: string[] = [],
) {
  const secret = secretOf(service, person);
  const picture = qrPicture(totpUri(secret, service.portal.host, person.user.username));
  const key = (base32(secret).match(/.{1,4}/g) ?? []).join(' ');
  const main = render('enrol', {
    ...(picture ?? { size: 8, path: '' }),
    key,
    action,
    return_to,
    ...again(message),
  });
  return page('Set up an authenticator app', main, message, cookies);
}

const showTotp = async ({ caller, body }: Visit<Onward>, service: PortalService, message = '') =>
  offerTotp(service, caller, { action: '/account/totp', return_to: body.return_to }, message);

export const startTotp = formOf<Person>()({ return_to }, showTotp);

/** @returns the new recovery codes, and when the account was changed */
export async function confirmTotp(
  service: PortalService,
  actor: Actor,
  tokens: store.Tokens | null,
  person: Enrolling,
  code: string,
) {
  const { database, portal } = service;
  const [
    secret,
    {
      user: { id },
    },
  ] = [secretOf(service, person), person];
  const step = findTotpStep(secret, code.replace(/\s/g, ''), await store.readClock(database));
  const sealed =
    step && sealSecret(createTotpKey(portal.secrets[0] ?? ''), secret.toString('base64'), id);
  const changedAt =
    sealed && (await store.addTotp({ database, actor, userId: id, tokens }, sealed, step));
  if (!changedAt) return new Failure('invalid_code');
  service.reportFactor('totp', 'added', id);
  return { codes: await renewCodes(service, actor, id), changedAt };
}

async function renewCodes(service: PortalService, actor: Actor, userId: string): Promise<string[]> {
  const codes = createRecoveryCodes();
  const digests = codes.flatMap((code) => recoveryDigest(code) ?? []);
  await store.replaceRecoveryCodes(service.database, actor, userId, digests);
  service.reportFactor('recovery', 'added', userId);
  return codes;
}

export const finishTotp = formOf<Person>()(
  { code, return_to },
  async ({ caller, body, request }, service) => {
    const tokens = createTokens();
    const added = await confirmTotp(service, actorOf(caller, request), tokens, caller, body.code);
    if (added instanceof Failure) return added;
    return codesPage(
      added.codes,
      next(body.return_to, service),
      setCookies(tokens, service.portal),
    );
  },
  showTotp,
);

export const newCodes = async ({ caller, request }: Visit, service: PortalService) =>
  codesPage(await renewCodes(service, actorOf(caller, request), caller.user.id), PATH, []);

/** Options for `navigator.credentials.create`. */
export async function passkeyOptions({ caller: { user, token } }: Visit, service: PortalService) {
  const options = await createOptions(service, 'register', token, user.id);
  return {
    data: {
      ...options,
      user: { id: uuidToBytes(user.id).toString('base64url'), name: user.username },
    },
  };
}

const newPasskey = { name: label, credential: text({ max: 32_768 }), return_to };

export const addPasskey = formOf<Person>()(
  newPasskey,
  async (call, service) => {
    const {
      caller,
      caller: {
        user: { id },
        token,
      },
      body,
      request,
    } = call;
    const [{ database, portal }, actor, tokens] = [
      service,
      actorOf(caller, request),
      createTokens(),
    ];
    const isAdded = await register(
      service,
      { database, actor, userId: id, tokens },
      token,
      body.name,
      body.credential,
    );
    if (!isAdded) return new Failure('invalid_passkey');
    service.reportFactor('passkey', 'added', id);
    const [cookies, hasCodes] = [
      setCookies(tokens, portal),
      (await store.countRecoveryCodes(database, id)) > 0,
    ];
    if (hasCodes) return showFactors(unasked(call), service, '', cookies);
    return codesPage(await renewCodes(service, actor, id), next(body.return_to, service), cookies);
  },
  (call, service, message) => showFactors({ ...call, query: call.body }, service, message),
);

const unasked = (call: Visit) => ({ ...call, query: { return_to: '' } });

export const removeFactor = formOf<Person>()(
  { passkey: optional(text({ max: 2_048 })) },
  async (call, service) => {
    const {
      caller,
      caller: {
        user: { id },
      },
      body,
      request,
    } = call;
    const what = body.passkey === undefined ? 'totp' : Buffer.from(body.passkey, 'base64url');
    const removed = await store.removeFactors(service.database, actorOf(caller, request), id, what);
    if (removed > 0) service.reportFactor(what === 'totp' ? 'totp' : 'passkey', 'removed', id);
    return showFactors(unasked(call), service);
  },
);

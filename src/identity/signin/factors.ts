import { createHmac } from 'node:crypto';
import { sealSecret } from '../../platform/crypto/service-secret.ts';
import { uuidToBytes } from '../../platform/crypto/text.ts';
import { randomToken } from '../../platform/crypto/token.ts';
import { Failure } from '../../platform/http/route/errors.ts';
import { text, withDefault } from '../../platform/http/route/schema.ts';
import type { Html } from '../../platform/http/site/html.ts';
import {
  base32,
  createRecoveryCodes,
  createTotpKey,
  findTotpStep,
  recoveryDigest,
  totpUri,
} from '../factors/codes.ts';
import { createOptions, register } from '../factors/passkeys.ts';
import {
  addTotp,
  countRecoveryCodes,
  findTotp,
  listPasskeys,
  readClock,
  removeFactors,
  replaceRecoveryCodes,
} from '../store/signin/factors.ts';
import { typedCode } from '../names.ts';
import type { PortalService } from '../service.ts';
import { type Actor, actorOf } from '../store/audit.ts';
import { createCookies, type PortalCall, recentUserForm, type SignedInUser } from './browser.ts';
import { returnAddress } from './return-address.ts';
import { code, form, label, return_to, type ReturnInput } from './forms.ts';
import { accountPage, codesPage, done, formPage, when, withCookies } from './pages.ts';
import { changeForm } from './rows.ts';
import { formValues, type PageCall, render, renderIf } from './templates.ts';

/** The encoder is shared with pages that make codes in the browser. */
const { qrPicture }: { qrPicture(text: string): { size: number; path: string } | null } =
  await import(import.meta.resolve('../../platform/http/site/pages/qr.js'));

const PATH = '/account/factors';

const PASSKEY_FIELDS = { name: label, credential: text({ max: 32_768 }), return_to };

export async function showFactors(call: PortalCall<Partial<ReturnInput>>, service: PortalService) {
  const { database } = service;
  const { user } = call.caller;
  const { return_to = '' } = call.query;
  const [totp, passkeys, codes] = await Promise.all([
    findTotp(database, user.id),
    listPasskeys(database, user.id),
    countRecoveryCodes(database, user.id),
  ]);
  const unused = hasApps(service) ? 'totp-offered' : 'totp-missing';
  const items = passkeys.map((passkey) =>
    render('passkey-item', {
      name: passkey.name,
      use: passkey.signs_in_alone ? 'signs you in alone' : 'second step after the password',
      where: passkey.is_backup_eligible ? 'synchronized' : 'on one device',
      added: when(passkey.created_at),
      used: when(passkey.last_used_at),
      id: passkey.id.toString('base64url'),
    }),
  );
  return accountPage(call, 'Second factors', 'factors', {
    totp: render(totp ? 'totp-used' : unused, { return_to }),
    add_passkey: service.portal.hasPasskeys
      ? render('add-passkey', { ...formValues('passkey', PASSKEY_FIELDS, call), return_to })
      : render('passkeys-missing'),
    passkeys: items.length > 0 ? items : render('no-passkey'),
    codes,
    renew: renderIf(totp !== null || passkeys.length > 0, 'renew'),
  });
}

const showFactorsAgain = (
  call: PortalCall<unknown, unknown, Partial<ReturnInput>>,
  service: PortalService,
) => showFactors({ ...call, query: call.body }, service);

/** Who sets up an app. */
type Enrolling = Pick<SignedInUser, 'user' | 'token'>;

const hasApps = ({ factorSecrets }: PortalService) => factorSecrets.length > 0;

const NO_APPS = new Failure('conflict', {
  message:
    'Authenticator apps cannot be set up, because the operator has not set IDENTITY_SECRET. Use a passkey or a security key.',
});

function currentSecret({ factorSecrets }: PortalService) {
  const [current] = factorSecrets;
  if (current === undefined) throw new Error('internal error: TOTP needs IDENTITY_SECRET');
  return current;
}

/** HMAC-SHA-1 takes a key of 160 bits (RFC 4226, 4). */
const SECRET_BYTES = 20;

/**
 * A random value in the form, new with each start. A thief of the cookie alone cannot compute the
 * secret that the owner is shown. After a mistyped code, the same form has the same secret.
 */
const setup = text({ min: 1, max: 64 });

export const TOTP_FIELDS = { code, setup, return_to };

/**
 * The secret of an enrolment. It is stored only with its first right code. It is bound to the user
 * and the session. A removal changes the account's time of change, and so ends a form.
 */
const enrolmentSecret = (service: PortalService, { user, token }: Enrolling, setup: string) =>
  createHmac('sha256', currentSecret(service))
    .update(JSON.stringify(['totp', user.id, token, user.updated_at, setup]))
    .digest()
    .subarray(0, SECRET_BYTES);

/** @param action where the form with the first code goes  @param wayOut of the page */
export function offerTotp(
  service: PortalService,
  person: Enrolling,
  action: string,
  return_to: string,
  call: PageCall,
  wayOut: Html,
) {
  const setup = call.repeated?.typed.setup ?? randomToken();
  const secret = enrolmentSecret(service, person, setup);
  const uri = totpUri(secret, service.site.SITE_NAME, person.user.username);
  const { size, path } = qrPicture(uri) ?? { size: 8, path: '' };
  const key = base32(secret).replace(/.{4}(?=.)/g, '$& ');
  const values = { size, path, key, action, setup, return_to, uri, way_out: wayOut };
  return formPage('Set up an authenticator app', 'enrol', TOTP_FIELDS, call, values);
}

/** Each start shows another key, and a form that is shown again its own. */
const showTotp = async (
  call: PortalCall<unknown, unknown, Partial<ReturnInput>>,
  service: PortalService,
) => {
  if (!hasApps(service)) return NO_APPS;
  const { return_to = '' } = call.body;
  return offerTotp(service, call.caller, '/account/totp', return_to, call, render('cancel'));
};

export const startTotp = form(recentUserForm, { return_to }, showTotp, showFactorsAgain);

/** @returns when the account was changed */
export async function confirmTotp(
  service: PortalService,
  actor: Actor,
  person: Enrolling,
  { code, setup }: Readonly<{ code: string; setup: string }>,
) {
  if (!hasApps(service)) return NO_APPS;
  const secret = enrolmentSecret(service, person, setup);
  const step = findTotpStep(secret, typedCode(code), await readClock(service.database));
  if (step === null) return new Failure('invalid_code');
  const key = createTotpKey(currentSecret(service));
  const { id, updated_at } = person.user;
  const sealed = sealSecret(key, secret.toString('base64'), id);
  const changedAt = await addTotp(service.database, actor, sealed, step, updated_at);
  return changedAt ?? new Failure('invalid_code');
}

/**
 * After a factor was added.
 * @returns new recovery codes; none if the user still has some, which stay valid
 */
export async function codesAfter(
  service: PortalService,
  actor: Actor,
  userId: string,
  factor: 'totp' | 'passkey',
) {
  service.reportFactor(factor, 'added', userId);
  const count = await countRecoveryCodes(service.database, userId);
  return count > 0 ? [] : renewCodes(service, actor, userId);
}

/** The page after a factor was added. The session has more proof now, and so new tokens. */
async function showAdded(
  call: PortalCall<unknown, unknown, ReturnInput>,
  service: PortalService,
  factor: 'totp' | 'passkey',
  notice: string,
) {
  const { caller, request } = call;
  const cookies = await createCookies(service, request, caller.token, factor);
  const codes = await codesAfter(service, actorOf(caller, request), caller.user.id, factor);
  if (codes.length === 0) return done(PATH, notice, cookies);
  const next = returnAddress(call.body.return_to, service.portal) ?? PATH;
  return withCookies(codesPage(codes, next, call), cookies);
}

/** @returns none if the account has no second factor */
async function renewCodes(service: PortalService, actor: Actor, userId: string) {
  const codes = createRecoveryCodes();
  const digests = codes.flatMap((code) => recoveryDigest(code) ?? []);
  const isReplaced = await replaceRecoveryCodes(service.database, actor, userId, digests);
  if (!isReplaced) return [];
  service.reportFactor('recovery', 'added', userId);
  return codes;
}

export const finishTotp = form(
  recentUserForm,
  TOTP_FIELDS,
  async (call, service) => {
    const { caller, request } = call;
    const added = await confirmTotp(service, actorOf(caller, request), caller, call.body);
    return added instanceof Failure ? added : showAdded(call, service, 'totp', 'The app is added.');
  },
  showTotp,
);

export const newCodes = form(
  recentUserForm,
  {},
  async (call, service) => {
    const { caller, request } = call;
    const codes = await renewCodes(service, actorOf(caller, request), caller.user.id);
    if (codes.length > 0) return codesPage(codes, PATH, call);
    return new Failure('conflict', {
      message: 'You have no second factor. Add one first; you get recovery codes with it.',
    });
  },
  showFactorsAgain,
);

/** Options for `navigator.credentials.create`. */
export async function passkeyOptions(
  { caller: { user, token } }: PortalCall,
  service: PortalService,
) {
  const options = await createOptions(service, 'register', token, user.id);
  const id = uuidToBytes(user.id).toString('base64url');
  return { data: { ...options, user: { id, name: user.username } } };
}

export const addPasskey = form(
  recentUserForm,
  PASSKEY_FIELDS,
  async (call, service) => {
    const { caller, body, request } = call;
    const refused = await register(service, request, caller, body.name, body.credential);
    return refused ?? showAdded(call, service, 'passkey', 'The passkey or security key is added.');
  },
  showFactorsAgain,
);

/** One passkey, or without a passkey the app. */
export const removeFactor = changeForm(
  recentUserForm,
  { passkey: withDefault(text({ max: 2_048 }), '') },
  'The factor is removed.',
  async ({ caller, body: { passkey }, request }, { database, reportFactor }) => {
    const userId = caller.user.id;
    const factor = passkey === '' ? 'totp' : 'passkey';
    const id = Buffer.from(passkey, 'base64url');
    const removed = await removeFactors(database, actorOf(caller, request), userId, factor, id);
    if (removed) reportFactor(factor, 'removed', userId);
  },
  showFactorsAgain,
);

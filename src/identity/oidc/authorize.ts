import { throttleKey } from '../../platform/db/throttle.ts';
import { Failure } from '../../platform/http/route/errors.ts';
import type { Call, RequestInfo } from '../../platform/http/route/route.ts';
import { oneOf, text } from '../../platform/http/route/schema.ts';
import type { PortalService } from '../service.ts';
import { portalForm, type SignedInUser, signedInUserOf } from '../signin/browser.ts';
import { form } from '../signin/forms.ts';
import { continuePage, page } from '../signin/pages.ts';
import { actorOf } from '../store/audit.ts';
import { findClient } from '../store/oidc/clients.ts';
import { hasConsent, insertConsent } from '../store/oidc/consents.ts';
import { insertGrant } from '../store/oidc/grants.ts';
import { isRegistered, withQuery } from './addresses.ts';
import { render, scopeItems } from './pages.ts';
import { AUTHORIZE_PATH, readAuthorization, repeatedNames, type Request } from './request.ts';
import { type FormCall, type OidcService, redirect } from './service.ts';

/**
 * The authorization endpoint (OpenID Connect Core, 3.1.2). Nothing is sent to an address before it
 * is known to belong to the program (RFC 9700, 4.11.2).
 */

/** The longest address to which the sign-in page returns. */
const MAX_ADDRESS = 4_096;

const stop = (message: string) => new Failure('invalid_body', { message });

/** The address of a program with an answer in it, and who gives it (RFC 9207). */
function answerAddress(
  { redirectUri, parameters }: Pick<Request, 'redirectUri' | 'parameters'>,
  answer: Readonly<Record<string, string>>,
  { portal: { origin: iss } }: PortalService,
) {
  const state = parameters.get('state') ?? '';
  return withQuery(redirectUri, { ...answer, ...(state && { state }), iss });
}

/** @returns the request; or for a wrong one, where the browser goes, or what it gets */
async function readRequest(parameters: URLSearchParams, service: PortalService) {
  const repeated = repeatedNames(parameters);
  if (repeated.includes('client_id') || repeated.includes('redirect_uri'))
    return stop('The program sent client_id or redirect_uri twice. Tell its operator.');
  const client = await findClient(service.database, parameters.get('client_id') ?? '');
  if (!client?.enabled)
    return stop('No program is registered under this client_id. Tell the operator of the program.');
  const redirectUri = parameters.get('redirect_uri') ?? '';
  if (!isRegistered(redirectUri, client.redirect)) {
    return stop(
      `The program sent an address that is not registered for "${client.name}", so the sign-in stops here. Its operator must register exactly the redirect_uri that the program sends.`,
    );
  }
  const authorization = readAuthorization(parameters, client);
  const request = { client, redirectUri, parameters };
  if ('error' in authorization) return answerAddress(request, authorization, service);
  return { ...request, authorization };
}

/** GET: asks the person to sign in, or for consent, or sends the browser back with a code. */
export async function authorize(
  { request }: Call<null, unknown, unknown, unknown>,
  service: OidcService,
) {
  const next = await decide(request.query, request, service);
  return typeof next === 'string' ? redirect(next) : next;
}

/**
 * The answer of the person who was asked. What the form sends is checked anew: if the session has
 * ended, the person signs in and is asked again. So is another user who has signed in meanwhile.
 */
export const consent = form(
  portalForm,
  { request: text({ max: 8_192 }), answer: oneOf('allow', 'deny') },
  async ({ body, request, madeFor }, service: OidcService) => {
    const parameters = new URLSearchParams(body.request);
    const next = await decide(parameters, request, service, { ...body, madeFor });
    // Not a redirect: browsers apply `form-action`, which names only the portal, to each of them.
    return typeof next === 'string' ? continuePage(next, 'continue', 'Continue') : next;
  },
);

/**
 * @param answer of a user who was asked for consent
 * @returns where the browser goes, or what it gets
 */
async function decide(
  parameters: URLSearchParams,
  request: RequestInfo,
  service: OidcService,
  answer?: Readonly<{ answer: 'allow' | 'deny'; madeFor: string | undefined }>,
) {
  const asked = await readRequest(parameters, service);
  if (typeof asked === 'string' || asked instanceof Failure) return asked;
  const refuse = (error: string, error_description: string) =>
    answerAddress(asked, { error, error_description }, service);
  if (answer?.answer === 'deny') return refuse('access_denied', 'the user refused');

  const caller = await signedInUserOf(request, service);
  // The cookie was not checked: its session may be active.
  if (caller instanceof Failure && caller.code === 'too_many_requests') return caller;
  const user = caller instanceof Failure ? null : caller;
  const { client, authorization } = asked;
  const isSilent = authorization.prompts.includes('none');
  if (!user || (await needsSignIn(user, asked, service))) {
    if (isSilent) return refuse('login_required', 'the user must sign in');
    return pageAddress('/login', user, asked, service);
  }
  const { session } = user;
  if (await isOther(user, asked, service))
    return refuse('login_required', 'another user is signed in than the one of id_token_hint');
  if (session.hasTemporaryPassword && session.methods !== 'passkey')
    return refuse('access_denied', 'the user has a temporary password');
  if (client.groups.length > 0 && !client.groups.some((name) => user.user.groups.includes(name)))
    return refuse('access_denied', 'the user may not sign in at this program');
  if (client.second_factor && session.methods === 'password') {
    if (isSilent) return refuse('interaction_required', 'the user needs a second factor');
    return pageAddress('/account/factors', user, asked, service);
  }
  const isConsent = answer?.madeFor === user.user.id;
  if (isConsent) {
    await insertConsent(service.database, client.id, user.user.id, authorization.scopes);
  } else if (answer || (await needsConsent(user, asked, service))) {
    if (isSilent) return refuse('consent_required', 'the user must give consent');
    return consentPage(request, user, asked);
  }
  const code = await insertGrant(service.database, actorOf(user, request), session.id, asked);
  if (code === null) return pageAddress('/login', user, asked, service);
  service.countOidc(['code']);
  return answerAddress(asked, { code }, service);
}

/** In the address to which the browser returns: the session that was not sufficient, signed. */
const MARK = 'again';

async function markOf(id: string, { throttleSecret }: PortalService) {
  const digest = throttleKey(await throttleSecret(), ['oidc sign-in', id]);
  return `${id}.${digest.toString('base64url')}`;
}

/** Whether the session is not enough for what the program asks (Core, 3.1.2.1: prompt, max_age). */
async function needsSignIn(
  { session }: SignedInUser,
  { parameters, authorization: { prompts, maxAge } }: Request,
  service: OidcService,
) {
  if (!session.isProven) return true;
  const isAsked = prompts.includes('login') || prompts.includes('select_account');
  if (!isAsked && session.age <= maxAge) return false;
  // After the form, there is another session than the one in the mark.
  const mark = parameters.get(MARK) ?? '';
  const [id = ''] = mark.split('.');
  return id === session.id || mark !== (await markOf(id, service));
}

/** A page that returns here. */
async function pageAddress(
  page: '/login' | '/account/factors',
  caller: SignedInUser | null,
  { parameters }: Request,
  service: OidcService,
) {
  const query = new URLSearchParams(parameters);
  query.set(MARK, await markOf(caller?.session.id ?? 'none', service));
  const return_to = `${service.portal.origin}${AUTHORIZE_PATH}?${query}`;
  if (return_to.length > MAX_ADDRESS) return TOO_LONG;
  return withQuery(page, { return_to, ...(caller && page === '/login' && { again: 'on' }) });
}

const TOO_LONG = stop(`The program sent a request of more than ${MAX_ADDRESS} characters.`);

/** Whether the program expects another person than the one who is signed in. */
async function isOther(
  { user }: SignedInUser,
  { client, authorization: { hint } }: Request,
  { keys }: OidcService,
) {
  if (hint === '') return false;
  const claims = await keys.readToken(hint);
  return claims?.sub !== user.id || claims.aud !== client.id;
}

/**
 * A program without a secret, at an address that another program of the device could take, is never
 * continued without asking (RFC 8252, 8.6).
 */
async function needsConsent(
  { user }: SignedInUser,
  { client, redirectUri, authorization: { prompts, scopes } }: Request,
  { database }: OidcService,
) {
  const isAlwaysAsked = !client.has_secret && !redirectUri.startsWith('https:');
  if (isAlwaysAsked || prompts.includes('consent')) return true;
  return client.consent && !(await hasConsent(database, client.id, user.id, scopes));
}

/** Asks whether a program may have what it asks for (ASVS 10.7.1 to 10.7.3). */
function consentPage(
  request: RequestInfo,
  { user }: SignedInUser,
  { client, redirectUri, parameters, authorization }: Request,
) {
  const { host, protocol } = new URL(redirectUri);
  const main = render('consent', {
    name: client.name,
    address: host === '' ? protocol : host,
    username: user.username,
    scopes: scopeItems(authorization.scopes),
    request: String(parameters),
  });
  return page(`Sign in to ${client.name}`, main, { request, account: user.id });
}

/**
 * POST (Core, 3.1.2.1; RP-Initiated Logout, 2), perhaps from a page of another site, which comes
 * without cookies: the browser sends the same request again with GET.
 */
export const byGet =
  (path: string) =>
  async ({ body }: FormCall) => {
    const address = `${path}?${body}`;
    return address.length > MAX_ADDRESS ? TOO_LONG : redirect(address);
  };

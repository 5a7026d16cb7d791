import { randomToken } from '../../platform/crypto/token.ts';
import { throttleKey } from '../../platform/db/throttle.ts';
import { Failure, type TextReply } from '../../platform/http/route/errors.ts';
import type { Call, RequestInfo } from '../../platform/http/route/route.ts';
import { HTML } from '../../platform/http/site/html.ts';
import type { PortalService } from '../service.ts';
import { type SignedInUser, signedInUserOf } from '../signin/browser.ts';
import { actorOf } from '../store/audit.ts';
import { findClient } from '../store/oidc/clients.ts';
import { hasConsent } from '../store/oidc/consents.ts';
import { insertGrant } from '../store/oidc/grants.ts';
import { consentPage } from './pages.ts';
import { isRegistered } from './addresses.ts';
import { AUTHORIZE_PATH, readAuthorization, repeatedNames, type Request } from './request.ts';
import type { OidcService } from './service.ts';

/**
 * The authorization endpoint (OpenID Connect Core, 3.1.2). Nothing is sent to an address before it
 * is known to belong to the program (RFC 9700, 4.11.2).
 */

/** The longest address to which the sign-in page returns. */
const MAX_ADDRESS = 4_096;

const redirect = (address: string): TextReply => ({
  text: '',
  contentType: HTML,
  headers: { Location: address, 'Referrer-Policy': 'no-referrer' },
});

const stop = (message: string) => new Failure('invalid_body', { message });

/** The address of a program with an answer in it, and who gives it (RFC 9207). */
export function answerAddress(
  { redirectUri, parameters }: Pick<Request, 'redirectUri' | 'parameters'>,
  answer: Readonly<Record<string, string>>,
  issuer: string,
) {
  const state = parameters.get('state') ?? '';
  const query = new URLSearchParams({ ...answer, ...(state && { state }), iss: issuer });
  return `${redirectUri}${redirectUri.includes('?') ? '&' : '?'}${query}`;
}

/** @returns the request; or what the browser gets for a wrong one */
export async function readRequest(
  parameters: URLSearchParams,
  { database, portal }: PortalService,
): Promise<Request | TextReply | Failure<'invalid_body'>> {
  const repeated = repeatedNames(parameters);
  if (repeated.includes('client_id') || repeated.includes('redirect_uri'))
    return stop('The program sent client_id or redirect_uri twice. Tell its operator.');
  const client = await findClient(database, parameters.get('client_id') ?? '');
  if (!client?.enabled)
    return stop('No program is registered under this client_id. Tell the operator of the program.');
  const redirectUri = parameters.get('redirect_uri') ?? '';
  if (!isRegistered(redirectUri, client.redirect)) {
    return stop(
      `The program sent an address that is not registered for "${client.name}", so the sign-in stops here. Its operator must register exactly the redirect_uri that the program sends.`,
    );
  }
  const authorization = readAuthorization(parameters, client);
  if (!('error' in authorization)) return { client, redirectUri, parameters, authorization };
  const { error, description } = authorization;
  const answer = { error, error_description: description };
  return redirect(answerAddress({ redirectUri, parameters }, answer, portal.origin));
}

type AuthorizeCall = Call<null, unknown, unknown, unknown>;

/** GET: asks the person to sign in, or for consent, or sends the browser back with a code. */
export async function authorize({ request }: AuthorizeCall, service: OidcService) {
  const asked = await readRequest(request.query, service);
  if (asked instanceof Failure || !('client' in asked)) return asked;
  const answer = (values: Readonly<Record<string, string>>) =>
    redirect(answerAddress(asked, values, service.portal.origin));
  const refuse = (error: string, error_description: string) => answer({ error, error_description });

  const caller = await signedInUserOf(request, service);
  // The cookie was not checked: its session may be active.
  if (caller instanceof Failure && caller.code === 'too_many_requests') return caller;
  const user = caller instanceof Failure ? null : caller;
  const { prompts } = asked.authorization;
  const isSilent = prompts.includes('none');
  if (!user || (await needsSignIn(user, asked, service))) {
    if (isSilent) return refuse('login_required', 'the user must sign in');
    return toPage('/login', user, asked, service);
  }
  const { session } = user;
  if (await isOther(user, asked, service))
    return refuse('login_required', 'another user is signed in than the one of id_token_hint');
  if (session.hasTemporaryPassword && session.methods !== 'passkey')
    return refuse('access_denied', 'the user has a temporary password');
  const { client } = asked;
  if (client.groups.length > 0 && !client.groups.some((name) => user.user.groups.includes(name)))
    return refuse('access_denied', 'the user may not sign in at this program');
  if (client.second_factor && session.methods === 'password') {
    if (isSilent) return refuse('interaction_required', 'the user needs a second factor');
    return toPage('/account/factors', user, asked, service);
  }
  if (await needsConsent(user, asked, service)) {
    if (isSilent) return refuse('consent_required', 'the user must give consent');
    return consentPage({ request, caller: user }, asked);
  }
  const code = await issueCode(request, user, asked, service);
  if (code === null) return toPage('/login', user, asked, service);
  service.countOidc(['code']);
  return answer({ code });
}

/** @returns null if the session was removed meanwhile */
async function issueCode(
  request: RequestInfo,
  caller: SignedInUser,
  { client, redirectUri, authorization }: Request,
  { database }: OidcService,
) {
  const code = randomToken();
  const { scopes, nonce, challenge } = authorization;
  const grant = {
    client,
    sessionId: caller.session.id,
    scopes,
    redirectUri,
    nonce,
    challenge,
  };
  const isInserted = await insertGrant(database, actorOf(caller, request), grant, code);
  return isInserted ? code : null;
}

// --- Marks in the address to which the browser returns

/** The session that was not sufficient, signed, so that the form is shown once. */
const SIGN_IN_MARK = 'again';
/** Says that this request had the consent of this session. */
export const CONSENT_MARK = 'consent';

/** @param values which the mark stands for */
async function markOf({ throttleSecret }: PortalService, kind: string, values: readonly string[]) {
  const secret = await throttleSecret();
  return throttleKey(secret, [`oidc ${kind}`, ...values]).toString('base64url');
}

/** The request as the program sent it. */
function withoutMarks(parameters: URLSearchParams) {
  const query = new URLSearchParams(parameters);
  query.delete(SIGN_IN_MARK);
  query.delete(CONSENT_MARK);
  return query;
}

const signInMark = async (id: string, service: PortalService) =>
  `${id}.${await markOf(service, 'sign-in', [id])}`;

/** @param sessionId whose user gives the consent */
export const consentMark = (
  service: PortalService,
  sessionId: string,
  parameters: URLSearchParams,
) => markOf(service, 'consent', [sessionId, String(withoutMarks(parameters))]);

/** Whether the session is not enough for what the program asks (Core, 3.1.2.1: prompt, max_age). */
async function needsSignIn(
  { session }: SignedInUser,
  { parameters, authorization: { prompts, maxAge } }: Request,
  service: OidcService,
) {
  if (!session.isProven) return true;
  const isAsked = prompts.includes('login') || prompts.includes('select_account');
  if (!isAsked && session.age <= (maxAge ?? Infinity)) return false;
  // After the form, there is another session than the one in the mark.
  const mark = parameters.get(SIGN_IN_MARK) ?? '';
  const [id = ''] = mark.split('.');
  return id === session.id || mark !== (await signInMark(id, service));
}

/** Leads to a page that returns here. */
async function toPage(
  page: '/login' | '/account/factors',
  caller: SignedInUser | null,
  { parameters }: Request,
  service: OidcService,
) {
  const query = withoutMarks(parameters);
  query.set(SIGN_IN_MARK, await signInMark(caller?.session.id ?? 'none', service));
  const address = `${service.portal.origin}${AUTHORIZE_PATH}?${query}`;
  if (address.length > MAX_ADDRESS)
    return stop(`The program sent a request of more than ${MAX_ADDRESS} characters.`);
  const again = caller && page === '/login' ? { again: 'on' } : {};
  return redirect(`${page}?${new URLSearchParams({ ...again, return_to: address })}`);
}

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
  { session, user }: SignedInUser,
  { client, redirectUri, parameters, authorization: { prompts, scopes } }: Request,
  service: OidcService,
) {
  const isAlwaysAsked = !client.has_secret && !redirectUri.startsWith('https:');
  if (isAlwaysAsked || prompts.includes('consent')) {
    const mark = await consentMark(service, session.id, parameters);
    return parameters.get(CONSENT_MARK) !== mark;
  }
  return client.consent && !(await hasConsent(service.database, client.id, user.id, scopes));
}

/**
 * POST (Core, 3.1.2.1), perhaps from a page of another site, which comes without cookies: the
 * browser sends the same request again with GET.
 */
export async function authorizeByForm(call: Call<null, unknown, unknown, URLSearchParams>) {
  const address = `${AUTHORIZE_PATH}?${call.body}`;
  if (address.length > MAX_ADDRESS)
    return stop(`The program sent a request of more than ${MAX_ADDRESS} characters.`);
  return redirect(address);
}

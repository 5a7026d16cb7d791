import {
  type Call,
  type Guard,
  anonymous,
  publicRead,
  type Reply,
  type RequestInfo,
  type Route,
  route,
  routeDefaults,
  type ServiceFacts,
} from '../../platform/http/route/route.ts';
import { Failure, type TextReply } from '../../platform/http/route/errors.ts';
import { HTML } from '../../platform/http/site/html.ts';
import { json } from '../../platform/http/route/json-body.ts';
import { createFrame } from '../../platform/http/site/pages.ts';
import { noInput, object, uuid } from '../../platform/http/route/schema.ts';
import type { Site } from '../../platform/runtime/context.ts';
import { bearer } from '../guard.ts';
import { nil, outcomeSchema } from '../model.ts';
import type { PortalService } from '../service.ts';
import * as account from './account.ts';
import * as administration from './administration.ts';
import * as audit from './audit-trail.ts';
import * as factors from './factors.ts';
import { pageOf, recentlySignedIn, signedIn, signInAgain } from './browser.ts';
import { return_to } from './forms.ts';
import { failurePage } from './pages.ts';
import { secure, secureRow } from '../secure.ts';
import { createLink, linkBody, linkSchema, make, revoke } from './links.ts';
import * as portal from './portal.ts';
import * as programKeys from './program-keys.ts';
import * as steps from './steps.ts';
import { CALLER_HEADERS } from '../verify.ts';
import { listPages, page, pageRow, post, shared, withPage } from './rows.ts';
import { portalVisitor, verifyOrSignIn, verifyQuery } from './verify.ts';

const userPath = object({ user_id: uuid() });

/** What a script of a page passes on to `navigator.credentials`. */
const options = <Caller>(
  pattern: string,
  about: string,
  guard: Guard<PortalService, Caller>,
  handle: (
    call: Call<Caller, unknown, unknown, null>,
    service: PortalService,
  ) => Promise<{ data: unknown } | Failure<'unauthorized'>>,
) =>
  route({
    ...shared,
    errors: ['service_failed', 'unauthorized', 'signin_needed'],
    pattern,
    summary: `Sign-in pages: ${about}`,
    guard,
    async handle(call, service: PortalService) {
      const isPerson = call.request.headers['sec-fetch-mode'] === 'navigate';
      return isPerson ? toPage(call) : handle(call, service);
    },
  });

/** For a person who opens the address of a form, as after Enter in the address bar. */
const toPage = ({ request }: Readonly<{ request: RequestInfo }>) =>
  new Failure('signin_needed', { headers: { Location: pageOf(request.path) } });

/** The page of a form whose address has none. */
const pageOfForm = ({ pattern, path }: Pick<PortalRoute, 'pattern' | 'path'>): PortalRoute => ({
  ...route({
    ...publicRead,
    pattern,
    path,
    summary: 'Leads to the page of the form',
    errors: ['signin_needed'],
    handle: async (call) => toPage(call),
  }),
  isUnlisted: true,
});

const link = {
  ...routeDefaults,
  pattern: '/api/user/{user_id}/link',
  path: userPath,
  guard: bearer,
} as const;

type PortalRoute = Route<PortalService>;

const PAGES: readonly PortalRoute[] = [
  page('/login', 'the form', anonymous, portal.loginQuery, portal.showLogin),
  post('/login', 'sign in', portal.signIn),
  post('/login/code', 'a code of the second factor', steps.enterCode),
  post('/login/password', 'choose a password at the first sign-in', steps.choosePassword),
  post('/login/enrol', 'set up the second factor that is required', steps.enrol),
  post('/login/passkey', 'sign in with a passkey', portal.signInWithPasskey),
  post('/login/code/passkey', 'a passkey as the second factor', steps.enterPasskey),
  page('/link', 'the form for a link that sets a password', anonymous, {}, portal.showLink),
  post('/link', 'open a link that sets a password', portal.openLink),
  page('/logout', 'ask whether to sign out', anonymous, {}, account.askSignOut),
  post('/logout', 'sign out', account.signOut),

  page('/account', 'your account', signedIn, account.accountQuery, account.showAccount),
  post('/account/name', 'change your name', account.changeOwnName),
  post('/account/password', 'change your password', account.changeOwnPassword),
  {
    ...page('/account/export', 'your data as JSON', signedIn, {}, account.exportOwnData),
    replyType: 'application/json',
  },
  post('/account/delete', 'delete your account', account.deleteOneself),
  post('/account/sessions/end', 'end one of your sessions, or all', account.endSessions),
  page(
    '/account/factors',
    'your second factors',
    recentlySignedIn,
    { return_to },
    factors.showFactors,
  ),
  post('/account/totp/start', 'set up an authenticator app', factors.startTotp),
  post('/account/totp', 'confirm an authenticator app', factors.finishTotp),
  post('/account/recovery', 'new recovery codes', factors.newCodes),
  post('/account/factors/remove', 'remove a second factor', factors.removeFactor),
  post('/account/passkeys', 'add a passkey', factors.addPasskey),

  page('/account/keys', 'your API keys', recentlySignedIn, account.listQuery, account.showKeys),
  post('/account/keys', 'create an API key', account.createKey),
  post('/account/keys/revoke', 'revoke an API key', account.revokeKey),

  page(
    '/account/program-keys',
    'keys without a user',
    signedIn,
    account.listQuery,
    programKeys.showProgramKeys,
  ),
  post('/account/program-keys', 'create a key without a user', programKeys.createProgramKey),
  post('/account/program-keys/revoke', 'revoke a key without a user', programKeys.revokeProgramKey),

  ...listPages('/account/users', 'users', administration.usersQuery, administration.showUsers),
  post('/account/users', 'create a user', administration.createUser),
  route({
    ...pageRow('GET', '/account/users/{user_id}', 'one user'),
    guard: signedIn,
    path: userPath,
    query: noInput,
    handle: withPage(administration.showUser),
  }),
  ...Object.entries(administration.CHANGES).map(([name, form]) =>
    route({
      ...pageRow('POST', `/account/users/{user_id}/${name}`, `${name} of a user`),
      path: userPath,
      ...form,
      handle: withPage(form.handle),
    }),
  ),
  ...listPages('/account/audit', 'the audit trail', audit.auditQuery, audit.showAudit),
];

/** For scripts of the pages, other programs and proxies. */
const OTHERS: readonly PortalRoute[] = [
  options('/login/passkey', 'options for a passkey', anonymous, portal.passkeyOptions),
  options(
    '/login/code/passkey',
    'options for a passkey as the second factor',
    anonymous,
    steps.secondFactorOptions,
  ),
  options(
    '/account/passkeys',
    'options for a new passkey',
    recentlySignedIn,
    factors.passkeyOptions,
  ),

  route({
    ...link,
    method: 'POST',
    summary: 'Make a link with which a user sets a password; it replaces the earlier one',
    body: json(linkBody),
    success: 201,
    reply: linkSchema,
    errors: ['forbidden', 'not_found', 'conflict', 'signin_too_old'],
    handle: make,
  }),
  route({
    ...link,
    method: 'DELETE',
    summary: 'End the link of a user',
    reply: outcomeSchema('REVOKED'),
    errors: ['forbidden', 'not_found', 'signin_too_old'],
    handle: revoke,
  }),
  route({
    ...secureRow,
    handle: (call, service: PortalService) => secure(call, service, createLink(service.portal)),
  }),
  route({
    ...shared,
    pattern: '/api/auth/verify',
    isProxyCheck: true,
    summary:
      'Forward authentication: the caller, as headers for a proxy, or the way to the sign-in page',
    guard: portalVisitor,
    query: verifyQuery,
    reply: nil,
    replyHeaders: CALLER_HEADERS,
    handle: verifyOrSignIn,
    errors: [
      'unauthorized',
      'signin_needed',
      'signin_too_old',
      'second_factor_needed',
      'forbidden',
    ],
  }),
];

const isHtml = (reply: Reply<unknown>): reply is TextReply =>
  'text' in reply && reply.contentType === HTML && reply.text !== '';

/**
 * The routes of SIGNIN_PAGES, with the frame of the site around every page. This `verify` replaces
 * the one without the pages.
 * @param programPages those of OpenID Connect
 */
export function portalRoutes(
  site: Site,
  facts: ServiceFacts,
  programPages: readonly PortalRoute[] = [],
): readonly PortalRoute[] {
  // The other links are in the navigation of who is signed in, or lead to what needs a sign-in.
  const others = site.SITE_LINKS.filter((link) => !/\/(account|logout)$/.test(link));
  const programs = programPages.length > 0 ? ['Programs=/account/programs'] : [];
  const ownFrame = createFrame({ ...site, SITE_LINKS: [...programs, ...others] });
  const frame = createFrame({ ...site, SITE_LINKS: [] });
  const withFrame = (page: TextReply) => ({
    ...page,
    text: (page.text.includes('<nav') ? ownFrame : frame)(page.text),
  });
  const framed = (row: PortalRoute): PortalRoute => ({
    ...row,
    failurePage: (failure) => withFrame(failurePage(failure)),
    async answer(request, service, readBody) {
      const outcome = await row.answer(request, service, readBody);
      if (!(outcome instanceof Failure)) return isHtml(outcome) ? withFrame(outcome) : outcome;
      if (outcome.code === 'signin_too_old') return signInAgain(request, service);
      const { page, ...details } = outcome.details;
      return page ? new Failure(outcome.code, { ...details, page: withFrame(page) }) : outcome;
    },
  });
  const pages = [...PAGES, ...programPages];
  const rows = [...pages, ...OTHERS];
  const hasPage = ({ pattern }: PortalRoute) =>
    rows.some((row) => row.method === 'GET' && row.pattern === pattern);
  const forms = pages.filter((row) => row.method === 'POST' && !hasPage(row));
  return [
    ...pages.map(framed),
    ...OTHERS,
    portal.startPage(site, facts),
    ...forms.map(pageOfForm),
    // Where password managers send a person (W3C, A Well-Known URL for Changing Passwords).
    pageOfForm({ pattern: '/.well-known/change-password', path: noInput }),
  ];
}

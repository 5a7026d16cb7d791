import {
  anonymous,
  publicRead,
  type Route,
  route,
  routeDefaults,
} from '../../platform/http/route/route.ts';
import { type BodyRule, json } from '../../platform/http/route/json-body.ts';
import { noInput, object, text } from '../../platform/http/route/schema.ts';
import { HTML } from '../../platform/http/site/html.ts';
import { recentlySignedIn, signedIn } from '../signin/browser.ts';
import { FAILURES } from '../signin/forms.ts';
import { authorize, authorizeByForm } from './authorize.ts';
import { consent } from './consent.ts';
import { confirmLogout, logout, LOGOUT_PATH, logoutByForm } from './logout.ts';
import * as programs from './programs.ts';
import { AUTHORIZE_PATH, SCOPES } from './request.ts';
import { jsonReply, type OidcService } from './service.ts';
import { revoke, token } from './token.ts';
import { accessToken, userinfo } from './userinfo.ts';

const JSON_TYPE = 'application/json';

/** Programs in a browser read them, too. They say nothing of a user. */
const PUBLIC = { 'Access-Control-Allow-Origin': '*', 'Cache-Control': 'public, max-age=300' };

/** Fields of a form, of which unknown ones are ignored (RFC 6749, 3.1). */
function fields(names: readonly string[]): BodyRule<URLSearchParams> {
  const schema = object(Object.fromEntries(names.map((name) => [name, text()])));
  return {
    ...json(schema),
    formSchema: { ...schema.jsonSchema, required: undefined },
    accepts: () => null,
    parse: (raw) => new URLSearchParams(raw.toString('utf8')),
  };
}

const shared = { ...routeDefaults, query: noInput, reply: null } as const;
const page = {
  ...shared,
  method: 'GET',
  guard: anonymous,
  replyType: HTML,
  errors: FAILURES,
} as const;
const post = { ...shared, method: 'POST', guard: anonymous, replyType: JSON_TYPE } as const;
const TOKEN_ERRORS = [
  'invalid_request',
  'unauthorized',
  'too_many_requests',
  'key_unknown',
  'service_failed',
] as const;
const AUTHORIZATION = ['client_id', 'redirect_uri', 'response_type', 'scope', 'state'];
const CREDENTIALS = ['client_id', 'client_secret'];

/** What programs read first (OpenID Connect Discovery, 3; RFC 8414). */
async function discovery(_call: unknown, { portal }: OidcService) {
  const { origin: issuer } = portal;
  const at = (path: string) => `${issuer}${path}`;
  const methods = ['client_secret_basic', 'client_secret_post', 'none'];
  return jsonReply(
    {
      issuer,
      authorization_endpoint: at(AUTHORIZE_PATH),
      token_endpoint: at('/oidc/token'),
      userinfo_endpoint: at('/oidc/userinfo'),
      jwks_uri: at('/oidc/keys'),
      revocation_endpoint: at('/oidc/revoke'),
      end_session_endpoint: at(LOGOUT_PATH),
      scopes_supported: SCOPES,
      response_types_supported: ['code'],
      response_modes_supported: ['query'],
      grant_types_supported: ['authorization_code', 'refresh_token'],
      subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: ['RS256'],
      token_endpoint_auth_methods_supported: methods,
      revocation_endpoint_auth_methods_supported: methods,
      code_challenge_methods_supported: ['S256'],
      claims_supported: [
        'sub',
        'iss',
        'aud',
        'exp',
        'iat',
        'auth_time',
        'nonce',
        'amr',
        'sid',
        'name',
        'given_name',
        'family_name',
        'preferred_username',
        'updated_at',
        'email',
        'email_verified',
        'groups',
      ],
      prompt_values_supported: ['none', 'login', 'consent', 'select_account'],
      request_parameter_supported: false,
      request_uri_parameter_supported: false,
      claims_parameter_supported: false,
      authorization_response_iss_parameter_supported: true,
      backchannel_logout_supported: true,
      backchannel_logout_session_supported: true,
    },
    PUBLIC,
  );
}

type OidcRoute = Route<OidcService>;

const documents: readonly OidcRoute[] = [
  '/.well-known/openid-configuration',
  '/.well-known/oauth-authorization-server',
].map((pattern) =>
  route({
    ...publicRead,
    pattern,
    summary: 'OpenID Connect: what this provider offers',
    replyType: JSON_TYPE,
    handle: discovery,
  }),
);

/** Pages, in the frame of the site. */
export const OIDC_PAGES: readonly OidcRoute[] = [
  route({
    ...page,
    pattern: AUTHORIZE_PATH,
    summary: 'OpenID Connect: begins a sign-in at a program',
    handle: authorize,
  }),
  route({
    ...page,
    ...consent,
    method: 'POST',
    pattern: '/oidc/consent',
    summary: 'OpenID Connect: the answer of the person who was asked',
  }),
  route({
    ...page,
    pattern: LOGOUT_PATH,
    summary: 'OpenID Connect: sign-out that a program begins',
    handle: logout,
  }),
  route({
    ...page,
    ...confirmLogout,
    method: 'POST',
    pattern: '/oidc/logout/confirm',
    summary: 'OpenID Connect: the person confirms the sign-out',
  }),
  route({
    ...page,
    pattern: '/account/programs',
    summary: 'OpenID Connect: programs at which you have signed in',
    guard: signedIn,
    handle: programs.showPrograms,
  }),
  route({
    ...page,
    ...programs.registerClient,
    method: 'POST',
    pattern: '/account/programs',
    summary: 'OpenID Connect: register a program',
  }),
  route({
    ...page,
    ...programs.endOwn,
    method: 'POST',
    pattern: '/account/programs/end',
    summary: 'OpenID Connect: end what a program has of you',
  }),
  route({
    ...page,
    pattern: '/account/programs/{client_id}',
    summary: 'OpenID Connect: a program that is registered',
    guard: recentlySignedIn,
    path: programs.clientPath,
    handle: programs.showClient,
  }),
  ...Object.entries(programs.CLIENT_CHANGES).map(([name, form]) =>
    route({
      ...page,
      ...form,
      method: 'POST',
      pattern: `/account/programs/{client_id}/${name}`,
      summary: `OpenID Connect: ${name} of a program`,
      path: programs.clientPath,
    }),
  ),
];

/** For programs. */
export const OIDC_ROUTES: readonly OidcRoute[] = [
  ...documents,
  route({
    ...publicRead,
    pattern: '/oidc/keys',
    summary: 'OpenID Connect: the public keys that verify ID tokens',
    replyType: JSON_TYPE,
    errors: ['service_failed'],
    handle: async (_call: unknown, { keys }: OidcService) =>
      jsonReply({ keys: await keys.published() }, PUBLIC),
  }),
  route({
    ...post,
    pattern: AUTHORIZE_PATH,
    // The browser is sent on to the same address with GET, which reads the cookies.
    anySite: true,
    summary: 'OpenID Connect: begins a sign-in by a form',
    body: fields(AUTHORIZATION),
    replyType: HTML,
    errors: ['invalid_body'],
    handle: authorizeByForm,
  }),
  route({
    ...post,
    pattern: '/oidc/token',
    summary: 'OpenID Connect: tokens for a code or a refresh token',
    body: fields([
      'grant_type',
      'code',
      'redirect_uri',
      'code_verifier',
      'refresh_token',
      'scope',
      ...CREDENTIALS,
    ]),
    errors: TOKEN_ERRORS,
    handle: token,
  }),
  route({
    ...post,
    pattern: '/oidc/revoke',
    summary: 'OpenID Connect: ends a token',
    body: fields(['token', 'token_type_hint', ...CREDENTIALS]),
    errors: TOKEN_ERRORS,
    handle: revoke,
  }),
  ...(['GET', 'POST'] as const).map((method) =>
    route({
      ...shared,
      method,
      pattern: '/oidc/userinfo',
      guard: accessToken,
      summary: 'OpenID Connect: what the program may know of the user',
      replyType: JSON_TYPE,
      handle: userinfo,
    }),
  ),
  route({
    ...post,
    pattern: LOGOUT_PATH,
    anySite: true,
    summary: 'OpenID Connect: begins a sign-out by a form',
    body: fields(['id_token_hint', 'client_id', 'post_logout_redirect_uri', 'state']),
    replyType: HTML,
    handle: logoutByForm,
  }),
];

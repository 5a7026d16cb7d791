import {
  anonymous,
  publicRead,
  type Route,
  route,
  routeDefaults,
} from '../../platform/http/route/route.ts';
import { type BodyRule, invalidBody, json } from '../../platform/http/route/json-body.ts';
import { noInput, object, optional, text } from '../../platform/http/route/schema.ts';
import { HTML } from '../../platform/http/site/html.ts';
import { recentlySignedIn, signedIn } from '../signin/browser.ts';
import { acceptsFields } from '../signin/forms.ts';
import { page, pageRow, post, withPage } from '../signin/rows.ts';
import { authorize, byGet, consent } from './authorize.ts';
import { confirmLogout, logout, LOGOUT_PATH } from './logout.ts';
import * as programs from './programs.ts';
import { AUTHORIZE_PATH, repeatedNames, SCOPES } from './request.ts';
import { jsonReply, oauthPage, type OidcService } from './service.ts';
import { revoke, token } from './token.ts';
import { accessToken, userinfo } from './userinfo.ts';

const JSON_TYPE = 'application/json';

/** Programs in a browser read them, too. They say nothing of a user. */
const PUBLIC = { 'Access-Control-Allow-Origin': '*', 'Cache-Control': 'public, max-age=300' };

/**
 * Fields of a form, of which unknown ones are ignored (RFC 6749, 3.1).
 * @param isPassedOn to the route for GET, which judges them
 */
function fields(names: readonly string[], isPassedOn = false): BodyRule<URLSearchParams> {
  const schema = object(Object.fromEntries(names.map((name) => [name, optional(text())])));
  return {
    ...json(schema),
    formSchema: schema.jsonSchema,
    accepts: acceptsFields,
    parse(raw) {
      const parameters = new URLSearchParams(raw.toString('utf8'));
      const isWrong = repeatedNames(parameters).length > 0 || String(parameters).includes('%00');
      if (isPassedOn || !isWrong) return parameters;
      return invalidBody('has a parameter twice, or the character U+0000');
    },
  };
}

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
      request_uri_parameter_supported: false,
      authorization_response_iss_parameter_supported: true,
      backchannel_logout_supported: true,
      backchannel_logout_session_supported: true,
    },
    PUBLIC,
  );
}

type OidcRoute = Route<OidcService>;

const PROGRAM = `${programs.PROGRAMS_PATH}/{client_id}`;

/** Pages, in the frame of the site. */
export const OIDC_PAGES: readonly OidcRoute[] = [
  page(AUTHORIZE_PATH, 'begin a sign-in at a program', anonymous, {}, authorize),
  post('/oidc/consent', 'the answer of the person who was asked', consent),
  page(LOGOUT_PATH, 'sign out, as a program asks', anonymous, {}, logout),
  post('/oidc/logout/confirm', 'confirm that sign-out', confirmLogout),
  page(programs.PROGRAMS_PATH, 'your programs', signedIn, {}, programs.showPrograms),
  post(programs.PROGRAMS_PATH, 'register a program', programs.registerClient),
  post(`${programs.PROGRAMS_PATH}/end`, 'end what a program has of you', programs.endOwn),
  route({
    ...pageRow('GET', PROGRAM, 'a program that is registered'),
    guard: recentlySignedIn,
    path: programs.clientPath,
    query: noInput,
    handle: withPage(programs.showClient),
  }),
  ...Object.entries(programs.CLIENT_CHANGES).map(([name, form]) =>
    route({
      ...pageRow('POST', `${PROGRAM}/${name}`, `${name} of a program`),
      path: programs.clientPath,
      ...form,
      handle: withPage(form.handle),
    }),
  ),
];

const shared = { ...publicRead, method: 'POST' } as const;
const program = {
  ...shared,
  replyType: JSON_TYPE,
  errors: ['invalid_request', 'unauthorized', 'too_many_requests', 'service_failed'],
} as const;
/** The browser is sent on to the same address with GET, which reads the cookies. */
const byForm = { ...shared, anySite: true, replyType: HTML, errors: ['invalid_body'] } as const;
const document = { ...publicRead, replyType: JSON_TYPE } as const;
const CREDENTIALS = ['client_id', 'client_secret'];

/** For programs. */
export const OIDC_ROUTES: readonly OidcRoute[] = [
  ...['openid-configuration', 'oauth-authorization-server'].map((name) =>
    route({
      ...document,
      pattern: `/.well-known/${name}`,
      summary: 'OpenID Connect: what this provider offers',
      handle: discovery,
    }),
  ),
  route({
    ...document,
    pattern: '/oidc/keys',
    summary: 'OpenID Connect: the public keys that verify ID tokens',
    errors: ['service_failed'],
    handle: async (_call: unknown, { keys }: OidcService) =>
      jsonReply({ keys: await keys.published() }, PUBLIC),
  }),
  route({
    ...byForm,
    pattern: AUTHORIZE_PATH,
    summary: 'OpenID Connect: begins a sign-in by a form',
    body: fields(['client_id', 'redirect_uri', 'response_type', 'scope', 'state'], true),
    handle: byGet(AUTHORIZE_PATH),
  }),
  route({
    ...byForm,
    pattern: LOGOUT_PATH,
    summary: 'OpenID Connect: begins a sign-out by a form',
    body: fields(['id_token_hint', 'client_id', 'post_logout_redirect_uri', 'state'], true),
    handle: byGet(LOGOUT_PATH),
  }),
  route({
    ...program,
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
    errors: [...program.errors, 'key_unknown'],
    failurePage: oauthPage,
    handle: token,
  }),
  route({
    ...program,
    pattern: '/oidc/revoke',
    summary: 'OpenID Connect: ends a token',
    body: fields(['token', 'token_type_hint', ...CREDENTIALS]),
    failurePage: oauthPage,
    handle: revoke,
  }),
  ...[
    { method: 'GET', body: routeDefaults.body } as const,
    { method: 'POST', body: fields(['access_token']) } as const,
  ].map((row) =>
    route({
      ...program,
      ...row,
      pattern: '/oidc/userinfo',
      guard: accessToken,
      summary: 'OpenID Connect: what the program may know of the user',
      handle: userinfo,
    }),
  ),
];

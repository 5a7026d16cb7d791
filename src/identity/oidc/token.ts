import { randomToken, sha256 } from '../../platform/crypto/token.ts';
import { Failure } from '../../platform/http/route/errors.ts';
import type { Call, RequestInfo } from '../../platform/http/route/route.ts';
import { actorOf } from '../store/audit.ts';
import { type Client, findClientBySecret } from '../store/oidc/clients.ts';
import {
  ACCESS_SECONDS,
  exchangeCode,
  type Grant,
  type Issued,
  refreshTokens,
  revokeToken,
} from '../store/oidc/grants.ts';
import { claimsOf, proofOf } from './claims.ts';
import { ID_TOKEN, signToken } from './keys.ts';
import { repeatedNames } from './request.ts';
import { jsonReply, oauthBody, type OidcService } from './service.ts';

/** The token endpoint and revocation (RFC 6749, 3.2; RFC 7009). */

type FormCall = Call<null, unknown, unknown, URLSearchParams>;
type TokenFailure = Failure<
  'invalid_request' | 'unauthorized' | 'too_many_requests' | 'key_unknown'
>;

const wrong = (error: string, description: string) =>
  new Failure('invalid_request', { page: oauthBody(error, description) });

const INVALID_GRANT = wrong(
  'invalid_grant',
  'the code or token is unknown, was used, or ended with its session',
);

/** The credentials of a program. `secret`: null without one. */
type Credentials = Readonly<{ id: string; secret: string | null }>;

/** As a form encodes it (RFC 6749, 2.3.1 and appendix B). Some programs do not. */
function decodeForm(text: string) {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}

/** @returns null if the header is of another form */
function readBasic(header: string): Credentials | null {
  const encoded = /^basic +([A-Za-z0-9+/=_-]+) *$/i.exec(header)?.[1];
  if (encoded === undefined) return null;
  const text = Buffer.from(encoded, 'base64').toString();
  const [id = '', secret] = text.split(/:(.*)/s).map(decodeForm);
  return secret === undefined ? null : { id, secret };
}

function readCredentials({ headers }: RequestInfo, body: URLSearchParams) {
  const id = body.get('client_id') ?? '';
  const secret = body.get('client_secret');
  const { authorization } = headers;
  if (authorization === undefined) return { id, secret: secret === '' ? null : secret };
  const basic = readBasic(authorization);
  if (secret !== null || (id !== '' && id !== basic?.id))
    return wrong('invalid_request', 'authenticate in one way only');
  return basic ?? wrong('invalid_request', 'send Authorization: Basic');
}

const INVALID_CLIENT = oauthBody('invalid_client', 'the client or its secret is wrong');

/**
 * Authenticates the program, before anything else is looked at: one that tries two ways must not
 * lose its code (x/oauth2). Wrong secrets of a network are limited.
 */
async function authenticate(
  { request, body }: FormCall,
  service: OidcService,
): Promise<Client | TokenFailure> {
  if (repeatedNames(body).length > 0)
    return wrong('invalid_request', 'a parameter is given more than once');
  const credentials = readCredentials(request, body);
  if (credentials instanceof Failure) return credentials;
  const { id, secret } = credentials;
  const client = await service.checkCredential(request.network, {
    kind: 'client',
    key: sha256(`${id}\n${secret}`).toString('hex'),
    message: '',
    find: () => findClientBySecret(service.database, id, secret),
    isAllowed: ({ enabled }) => enabled,
  });
  if (!(client instanceof Failure)) return client;
  const { code, details } = client;
  const headers = { 'WWW-Authenticate': 'Basic realm="gatehouse"' };
  return new Failure(code, { ...details, headers, page: INVALID_CLIENT });
}

const newTokens = () => ({ access: randomToken(), refresh: randomToken() });

/** What PKCE's S256 makes of a verifier (RFC 7636, 4.6); empty without one. */
const challengeOf = (verifier: string) =>
  verifier === '' ? '' : sha256(verifier).toString('base64url');

function refused({ countOidc }: OidcService) {
  countOidc(['refused']);
  return INVALID_GRANT;
}

/** Before anything is used up: without an ID token, a program gets nothing (Core, 3.1.3.3). */
const KEY_MISSING = new Failure('key_unknown', {
  page: oauthBody('temporarily_unavailable', 'the signing key is missing; contact the operator'),
});

export async function token(call: FormCall, service: OidcService) {
  const client = await authenticate(call, service);
  if (client instanceof Failure) return client;
  const key = await service.keys.signing();
  if (!key) return KEY_MISSING;
  const { body, request } = call;
  const get = (name: string) => body.get(name) ?? '';
  const actor = actorOf(null, request);
  const tokens = newTokens();
  switch (get('grant_type')) {
    case 'authorization_code': {
      const given = {
        code: get('code'),
        redirectUri: get('redirect_uri'),
        challenge: challengeOf(get('code_verifier')),
      };
      const issued = await exchangeCode(service, actor, client, given, tokens);
      if (!issued) return refused(service);
      service.countOidc(['token']);
      const { nonce } = issued.grant;
      // Not of a refreshed token (Core, 12.2).
      const claims = { ...idClaims(issued.grant, client, service), nonce: nonce || undefined };
      return reply(issued, tokens.access, signToken(key, claims, ID_TOKEN));
    }
    case 'refresh_token': {
      const scopes = get('scope').split(' ').filter(Boolean);
      const given = { token: get('refresh_token'), scopes };
      const issued = await refreshTokens(service, actor, client, given, tokens);
      if (!issued) return refused(service);
      if (issued === 'invalid_scope')
        return wrong('invalid_scope', 'scope must not have more than was granted');
      service.countOidc(['refresh']);
      const claims = idClaims(issued.grant, client, service);
      return reply(issued, tokens.access, signToken(key, claims, ID_TOKEN));
    }
    case '':
      return wrong('invalid_request', 'grant_type is missing');
    default:
      return wrong(
        'unsupported_grant_type',
        'grant_type must be authorization_code or refresh_token',
      );
  }
}

const reply = ({ grant, refresh }: Issued, access_token: string, id_token: string) =>
  jsonReply({
    access_token,
    token_type: 'Bearer',
    expires_in: ACCESS_SECONDS,
    refresh_token: refresh ?? undefined,
    id_token,
    scope: grant.scopes.join(' '),
  });

function idClaims(grant: Grant, { id_token_seconds: seconds }: Client, { portal }: OidcService) {
  return {
    iss: portal.origin,
    ...claimsOf(grant),
    aud: grant.client_id,
    iat: grant.now,
    exp: grant.now + seconds,
    ...proofOf(grant),
    sid: grant.id,
  };
}

/** Also 200 for a token that is unknown (RFC 7009, 2.2). */
export async function revoke(call: FormCall, service: OidcService) {
  const client = await authenticate(call, service);
  if (client instanceof Failure) return client;
  const given = call.body.get('token') ?? '';
  if (given === '') return wrong('invalid_request', 'token is missing');
  await revokeToken(service.database, actorOf(null, call.request), client.id, given);
  return jsonReply({});
}

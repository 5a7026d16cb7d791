import { sha256, sha256Hex } from '../../platform/crypto/token.ts';
import { Failure } from '../../platform/http/route/errors.ts';
import type { RequestInfo } from '../../platform/http/route/route.ts';
import { actorOf } from '../store/audit.ts';
import { type Client, findClientBySecret } from '../store/oidc/clients.ts';
import { ACCESS_SECONDS, type Grant, redeem, revokeToken } from '../store/oidc/grants.ts';
import { ID_TOKEN, signToken } from './keys.ts';
import { type FormCall, jsonReply, oauthFailure, type OidcService } from './service.ts';
import { claimsOf, idsOf, proofOf } from './userinfo.ts';

/** The token endpoint and revocation (RFC 6749, 3.2; RFC 7009). */

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
    return oauthFailure('authenticate in one way only');
  return basic ?? oauthFailure('send Authorization: Basic');
}

/**
 * Authenticates the program, before anything else is looked at: one that tries two ways must not
 * lose its code (x/oauth2). Wrong secrets of a network are limited.
 */
async function authenticate({ request, body }: FormCall, service: OidcService) {
  const credentials = readCredentials(request, body);
  if (credentials instanceof Failure) return credentials;
  const { id, secret } = credentials;
  return service.checkCredential<Client>(request.network, {
    kind: 'client',
    key: sha256Hex(`${id}\n${secret}`),
    message: 'the client or its secret is wrong',
    headers: { 'WWW-Authenticate': 'Basic realm="gatehouse"' },
    find: () => findClientBySecret(service.database, id, secret),
    isAllowed: ({ enabled }) => enabled,
  });
}

/** What PKCE's S256 makes of a verifier (RFC 7636, 4.6); empty without one. */
const challengeOf = (verifier: string) =>
  verifier === '' ? '' : sha256(verifier).toString('base64url');

/** Before anything is used up: without an ID token, a program gets nothing (Core, 3.1.3.3). */
const KEY_MISSING = new Failure('key_unknown', {
  message: 'the signing key is missing; contact the operator',
});

const INVALID_GRANT = new Failure('invalid_request', {
  ...oauthFailure(
    'the code or token is unknown, was used, or ended with its session',
    'invalid_grant',
  ).details,
  credential: 'grant',
});

export async function token(call: FormCall, service: OidcService) {
  const client = await authenticate(call, service);
  if (client instanceof Failure) return client;
  const key = await service.keys.signing();
  if (!key) return KEY_MISSING;
  const get = (name: string) => call.body.get(name) ?? '';
  const type = get('grant_type');
  if (type === '') return oauthFailure('grant_type is missing');
  const isCode = type === 'authorization_code';
  if (!isCode && type !== 'refresh_token') {
    return oauthFailure(
      'grant_type must be authorization_code or refresh_token',
      'unsupported_grant_type',
    );
  }
  const given = {
    kind: isCode ? 'code' : 'refresh',
    token: get(isCode ? 'code' : 'refresh_token'),
    redirectUri: get('redirect_uri'),
    challenge: challengeOf(get('code_verifier')),
    // Some programs send those of the code, too.
    scopes: isCode ? [] : get('scope').split(' ').filter(Boolean),
  } as const;
  const { request } = call;
  // Anyone without a secret could guess one.
  const issued = await service.checkCredential(request.network, {
    kind: 'grant',
    key: sha256Hex(given.token),
    message: '',
    find: () => redeem(service, actorOf(null, request), client, given),
  });
  if (issued instanceof Failure && issued.code !== 'unauthorized') return issued;
  if (issued === 'invalid_scope')
    return oauthFailure('scope must not have more than was granted', 'invalid_scope');
  if (issued === 'ended' || issued instanceof Failure) {
    service.countOidc(['refused']);
    return INVALID_GRANT;
  }
  service.countOidc([isCode ? 'token' : 'refresh']);
  const { grant, access, refresh } = issued;
  // The nonce is not of a refreshed token (Core, 12.2).
  const nonce = isCode && grant.nonce !== '' ? { nonce: grant.nonce } : {};
  const claims = { ...idClaims(grant, client, service), ...nonce };
  const reply = jsonReply({
    access_token: access,
    token_type: 'Bearer',
    expires_in: ACCESS_SECONDS,
    refresh_token: refresh ?? undefined,
    id_token: signToken(key, claims, ID_TOKEN),
    scope: grant.scopes.join(' '),
  });
  return { ...reply, ...idsOf(grant) };
}

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
  if (given === '') return oauthFailure('token is missing');
  await revokeToken(service.database, actorOf(null, call.request), client.id, given);
  return jsonReply({});
}

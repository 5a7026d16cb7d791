import type { Client } from '../store/oidc/clients.ts';

/** What a program may send, read without a database. */

export const AUTHORIZE_PATH = '/oidc/authorize';

export const SCOPES = ['openid', 'profile', 'email', 'groups', 'offline_access'] as const;

/** @returns the parameters of an address of the authorization endpoint, or null */
export const parseAuthorization = ({ pathname, searchParams }: URL) =>
  pathname.replace(/\/$/, '') === AUTHORIZE_PATH ? searchParams : null;

/** Names of parameters that are given more than once (RFC 6749, 3.1). */
export const repeatedNames = (parameters: URLSearchParams) => {
  const names = [...parameters.keys()];
  return names.filter((name, at) => names.indexOf(name) !== at);
};

/** What an authorization request asks for. */
export type Authorization = Readonly<{
  scopes: readonly string[];
  nonce: string;
  challenge: string;
  prompts: readonly string[];
  maxAge: number;
  hint: string;
}>;
type AuthorizationError = Readonly<{ error: string; error_description: string }>;

/** Reads all but the program and its address, which were checked before. */
export function readAuthorization(
  parameters: URLSearchParams,
  client: Client,
): Authorization | AuthorizationError {
  const get = (name: string) => parameters.get(name) ?? '';
  const type = get('response_type');
  const asked = get('scope').split(' ');
  const known = SCOPES.filter((name) => asked.includes(name));
  const scopes = client.refresh ? known : known.filter((name) => name !== 'offline_access');
  const challenge = get('code_challenge');
  const method = get('code_challenge_method');
  const prompts = get('prompt').split(' ').filter(Boolean);
  const maxAge = get('max_age');
  const nonce = get('nonce');
  const unsupported = ['request', 'request_uri', 'registration'].find((name) => get(name) !== '');
  const isS256 = method === 'S256' && /^[\w-]{43}$/.test(challenge);
  const needsChallenge = client.pkce || !client.has_secret;
  const problems = [
    [repeatedNames(parameters).length > 0, 'a parameter is given more than once'],
    [unsupported, `${unsupported} is not supported`, `${unsupported}_not_supported`],
    [type === '', 'response_type is missing'],
    [type !== 'code', 'response_type must be code', 'unsupported_response_type'],
    [!/^(query)?$/.test(get('response_mode')), 'response_mode must be query'],
    [!scopes.includes('openid'), 'scope must have openid', 'invalid_scope'],
    [challenge === '' && method !== '', 'code_challenge is missing'],
    [challenge === '' && needsChallenge, 'code_challenge is required for this client (RFC 7636)'],
    [challenge !== '' && !isS256, 'code_challenge must be of code_challenge_method S256'],
    [prompts.includes('none') && prompts.length > 1, 'prompt=none excludes other values'],
    [!/^\d{0,9}$/.test(maxAge), 'max_age must be seconds'],
    [nonce.length > 512 || nonce.includes('\0'), 'nonce must have at most 512 characters'],
  ] as const;
  const [, description, error = 'invalid_request'] = problems.find(([isWrong]) => isWrong) ?? [];
  if (description !== undefined) return { error, error_description: description };
  return {
    scopes,
    nonce,
    challenge,
    prompts,
    maxAge: maxAge === '' ? Infinity : Number(maxAge),
    hint: get('id_token_hint'),
  };
}

/** A request of a program that is registered, for an address of it. */
export type Request = Readonly<{
  client: Client;
  redirectUri: string;
  parameters: URLSearchParams;
  authorization: Authorization;
}>;

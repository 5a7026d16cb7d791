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

/** What an authorization request asks for. `problem`: what is wrong with it. */
export type Authorization = Readonly<{
  scopes: readonly string[];
  nonce: string;
  challenge: string;
  prompts: readonly string[];
  maxAge: number | null;
  hint: string;
}>;
export type AuthorizationError = Readonly<{ error: string; description: string }>;

/** Reads all but the program and its address, which were checked before. */
export function readAuthorization(
  parameters: URLSearchParams,
  client: Client,
): Authorization | AuthorizationError {
  const get = (name: string) => parameters.get(name) ?? '';
  const wrong = (error: string, description: string) => ({ error, description });
  const [repeated] = repeatedNames(parameters);
  if (repeated !== undefined)
    return wrong('invalid_request', 'a parameter is given more than once');
  for (const name of ['request', 'request_uri', 'registration']) {
    if (get(name) !== '') return wrong(`${name}_not_supported`, `${name} is not supported`);
  }
  const type = get('response_type');
  if (type === '') return wrong('invalid_request', 'response_type is missing');
  if (type !== 'code') return wrong('unsupported_response_type', 'response_type must be code');
  if (!/^(query)?$/.test(get('response_mode')))
    return wrong('invalid_request', 'response_mode must be query');
  const asked = get('scope').split(' ');
  const scopes = SCOPES.filter((name) => asked.includes(name)).filter(
    (name) => name !== 'offline_access' || client.refresh,
  );
  if (!scopes.includes('openid')) return wrong('invalid_scope', 'scope must have openid');
  const challenge = get('code_challenge');
  const method = get('code_challenge_method');
  if (challenge === '' && method !== '')
    return wrong('invalid_request', 'code_challenge is missing');
  if (challenge === '' && (client.pkce || !client.has_secret))
    return wrong('invalid_request', 'code_challenge is required for this client (RFC 7636)');
  if (challenge !== '' && (method !== 'S256' || !/^[\w-]{43}$/.test(challenge)))
    return wrong('invalid_request', 'code_challenge must be of code_challenge_method S256');
  const prompts = get('prompt').split(' ').filter(Boolean);
  if (prompts.includes('none') && prompts.length > 1)
    return wrong('invalid_request', 'prompt=none excludes other values');
  const maxAge = get('max_age');
  if (!/^\d{0,9}$/.test(maxAge)) return wrong('invalid_request', 'max_age must be seconds');
  const nonce = get('nonce');
  if (nonce.length > 512 || nonce.includes('\0'))
    return wrong('invalid_request', 'nonce must have at most 512 characters');
  return {
    scopes,
    nonce,
    challenge,
    prompts,
    maxAge: maxAge === '' ? null : Number(maxAge),
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

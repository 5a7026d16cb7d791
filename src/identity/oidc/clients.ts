import { randomBytes } from 'node:crypto';
import {
  boolean,
  decimal,
  type Infer,
  object,
  type Schema,
  text,
  validate,
} from '../../platform/http/route/schema.ts';
import { groups, shownName } from '../rules.ts';
import { redirectProblem } from './addresses.ts';

/** What an operator says of a program at which users sign in. */

export const isClientId = (id: string) => /^[a-z0-9][a-z0-9._-]{0,63}$/.test(id);

const MAX_ADDRESSES = 20;

const addresses = (min: 0 | 1): Schema<readonly string[]> => ({
  jsonSchema: { type: 'array', items: { type: 'string' }, minItems: min, maxItems: MAX_ADDRESSES },
  read(input, at, reject) {
    const given = Array.isArray(input) ? input.map(String) : [];
    if (given.length < min || given.length > MAX_ADDRESSES)
      return reject(at, `must be ${min} to ${MAX_ADDRESSES} addresses`);
    const problem = given.map(redirectProblem).find((found) => found !== null);
    return problem === undefined ? given : reject(at, `has an address that ${problem}`);
  },
});

/** Empty for none. Only by https: the token that is sent there says who signed out. */
const backchannel = text({
  check: (address) => {
    if (address === '') return null;
    return address.startsWith('https:') ? redirectProblem(address) : 'must begin with https://';
  },
});

/** The names are those of the columns and of the options of commands. */
export const clientSchema = object({
  id: text({
    check: (id) =>
      isClientId(id) ? null : 'must have 1 to 64 characters of a-z, 0-9, ".", "_" and "-"',
  }),
  name: shownName(64, 1),
  redirect: addresses(1),
  logout_uri: addresses(0),
  backchannel_uri: backchannel,
  /** Users need one of them; empty: every user may sign in. */
  groups,
  pkce: boolean(),
  /** Whether the person is asked before the first sign-in. */
  consent: boolean(),
  refresh: boolean(),
  second_factor: boolean(),
  id_token_seconds: decimal({ min: 60, max: 86_400 }),
  enabled: boolean(),
});

export type ClientInput = Infer<typeof clientSchema>;
type Given = Readonly<Record<string, unknown>>;

const DEFAULTS = {
  logout_uri: [],
  backchannel_uri: '',
  groups: [],
  pkce: true,
  consent: true,
  refresh: false,
  second_factor: false,
  id_token_seconds: '600',
  enabled: true,
};

export const newClient = (given: Given) =>
  validate(clientSchema, { ...DEFAULTS, ...given }, 'invalid_body');

/** A program with some values changed. */
export const changedClient = (client: ClientInput, given: Given) =>
  validate(
    clientSchema,
    { ...client, id_token_seconds: String(client.id_token_seconds), ...given },
    'invalid_body',
  );

/**
 * 256 random bits. Letters and digits only, because programs disagree on how other characters are
 * encoded in `Authorization: Basic`.
 */
export const createSecret = () => randomBytes(32).toString('hex');

/** @returns why a secret that an operator chose is rejected, or null */
export const secretProblem = (secret: string) =>
  /^[A-Za-z0-9._~-]{32,128}$/.test(secret)
    ? null
    : 'the secret must have 32 to 128 characters of A-Z, a-z, 0-9, ".", "_", "~" and "-"';

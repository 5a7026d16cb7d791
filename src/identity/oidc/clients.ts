import { randomBytes } from 'node:crypto';
import {
  decimal,
  type Infer,
  object,
  partial,
  type Schema,
  text,
  withDefault,
} from '../../platform/http/route/schema.ts';
import { choice, groupList, shownName } from '../rules.ts';
import { redirectProblem } from './addresses.ts';

/** What an operator says of a program, in the texts of a form or of a command. */

const CLIENT_ID = {
  form: /^[a-z0-9][a-z0-9._-]{0,63}$/,
  problem: 'must have 1 to 64 characters of a-z, 0-9, ".", "_" and "-"',
};
export const isClientId = (id: string) => CLIENT_ID.form.test(id);
export const clientId = text({ pattern: CLIENT_ID });

const MAX_ADDRESSES = 20;

const addresses = (min: 0 | 1): Schema<readonly string[]> => ({
  jsonSchema: { type: 'string', description: 'Addresses, with white space or commas between them' },
  read(input, at, reject) {
    const given = String(input)
      .split(/[\s,]+/)
      .filter(Boolean);
    if (given.length < min || given.length > MAX_ADDRESSES)
      return reject(at, `must be ${min} to ${MAX_ADDRESSES} addresses`);
    const problem = given.map(redirectProblem).find((found) => found !== null);
    return problem === undefined ? given : reject(at, `has an address that ${problem}`);
  },
});

/** Empty for none. Only by https: the token that is sent there says who signed out. */
const backchannel = text({
  check(address) {
    if (address === '') return null;
    return address.startsWith('https:') ? redirectProblem(address) : 'must begin with https://';
  },
});

/** The names are those of columns, of fields of the page, and of options of commands. */
const members = {
  name: shownName(64, 1),
  redirect: addresses(1),
  logout_uri: withDefault(addresses(0), [], ''),
  backchannel_uri: withDefault(backchannel, ''),
  /** Users need one of them; empty: every user may sign in. */
  groups: withDefault(groupList, [], ''),
  /** Whether the person is asked before the first sign-in. */
  consent: withDefault(choice, true, 'true'),
  second_factor: withDefault(choice, false, 'false'),
  refresh: withDefault(choice, false, 'false'),
  pkce: withDefault(choice, true, 'true'),
  id_token_seconds: withDefault(decimal({ min: 60, max: 86_400 }), 600, '600'),
};

export const NEW_CLIENT = { id: clientId, ...members };
export const newClientSchema = object(NEW_CLIENT);
export type NewClient = Infer<typeof newClientSchema>;

export const CLIENT_CHANGE = partial(members);
export const clientChangeSchema = object(CLIENT_CHANGE);
export type ClientChange = Partial<Infer<typeof clientChangeSchema>> &
  Readonly<{ enabled?: boolean }>;

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

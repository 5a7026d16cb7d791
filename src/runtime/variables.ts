import { readFileSync } from 'node:fs';
import { codeOf } from './errors.ts';
import { decodeUtf8 } from './text.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

/** Returned by a parser for an invalid value: what the variable accepts, as in "must be …". */
export class Expected {
  readonly form: string;
  constructor(form: string) {
    this.form = form;
  }
}

export type Variable<T> = Readonly<{
  fallback: string; // the default in the documentation; `–` if there is none
  unset: T; // the value of an unset variable
  parse: (text: string) => T | Expected;
  /** For a secret: a shorter one is an error unless ALLOW_WEAK_SECRETS is on. */
  minLength?: number;
}>;

export type Variables = Readonly<Record<string, Variable<unknown>>>;
export type Values<V extends Variables> = {
  readonly [K in keyof V]: V[K] extends Variable<infer T> ? T : never;
};

/** Problems stop the startup, warnings are logged. One sentence each. */
export class Findings {
  readonly problems: string[] = [];
  readonly warnings: string[] = [];
  /**
   * Whether a problem with this variable was reported, so that it is not also reported as missing.
   */
  reports(name: string) {
    return this.problems.some((problem) => new RegExp(`^${name}(_FILE)? `).test(problem));
  }
}

/**
 * What a service's `read` gets. An invalid value is reported, and the value of an unset variable is
 * used.
 */
export type SettingsInput<V extends Variables, Address> = Readonly<{
  values: Values<V>;
  /** Reports a database that is not configured, and a connection to it that is not encrypted. */
  requireDatabase: () => Address;
  purpose: 'serve' | 'administer'; // `administer` needs only the database
  /** The environment without Gatehouse's variables, for programs that a service starts. */
  foreign: Environment;
  findings: Findings;
  userSource: UserSource;
}>;

/** What names the user of a request without a token: a proxy, or the identity service. */
export type UserSource = Readonly<
  Record<'TRUSTED_USER_HEADER' | 'TRUSTED_GROUPS_HEADER' | 'SIGNIN_VERIFY_URL', string | null>
>;

/**
 * Reads the variables of a table under `prefix` + name. An empty one counts as unset, as in
 * container files.
 */
export function readVariables<V extends Variables>(
  variables: V,
  environment: Environment,
  findings: Findings,
  prefix = '',
): Values<V> {
  const entries = Object.entries(variables).map(([name, { unset, parse }]) => {
    const given = readText(environment, prefix + name, findings);
    const value = given === null ? unset : parse(given);
    if (!(value instanceof Expected)) return [name, value];
    findings.problems.push(`${prefix}${name} must be ${value.form}.`);
    return [name, unset];
  });
  // Each value was read by the variable of its name.
  return Object.fromEntries(entries) as Values<V>;
}

/**
 * `X_FILE` names a file that holds `X`. Editors and `echo` add a trailing newline, and some a byte
 * order mark: both are removed.
 */
function readText(environment: Environment, name: string, { problems }: Findings) {
  const value = environment[name] || null;
  const file = environment[`${name}_FILE`] || null;
  if (file === null) return value;
  if (value !== null) {
    problems.push(`${name} and ${name}_FILE are both set; remove one of them.`);
    return null;
  }
  try {
    return decodeUtf8(readFileSync(file)).replace(/^\ufeff|\r?\n$/g, '') || null;
  } catch (error) {
    problems.push(`${name}_FILE names a file that cannot be read (${codeOf(error)}).`);
    return null;
  }
}

export const MIN_SECRET = 16;
export const SECRET_ADVICE = 'make a long random one with: openssl rand -hex 32';

export function number(fallback: number, min: number, max: number): Variable<number> {
  return {
    fallback: String(fallback),
    unset: fallback,
    parse(text) {
      const value = /^[0-9]{1,10}$/.test(text) ? Number(text) : Number.NaN;
      return value >= min && value <= max
        ? value
        : new Expected(`a whole number from ${min} to ${max}`);
    },
  };
}

/** A number, or 0 for no limit. */
export function numberOrOff(min: number, max: number): Variable<number> {
  return {
    fallback: '0',
    unset: 0,
    parse(text) {
      const value = text === '0' ? 0 : number(0, min, max).parse(text);
      return value instanceof Expected ? new Expected(`0, or ${value.form}`) : value;
    },
  };
}

/** A number whose default depends on other settings. @param fallback only documented */
export const numberOrNull = (
  fallback: number | null,
  min: number,
  max: number,
): Variable<number | null> => ({
  ...number(0, min, max),
  fallback: String(fallback ?? '–'),
  unset: null,
});

/** Returns null for a valid text, otherwise what is accepted. */
type Check = (value: string) => string | null;
export const matching =
  (pattern: RegExp, form: string): Check =>
  (value) =>
    pattern.test(value) ? null : form;

export function text<F extends string | null>(fallback: F, check?: Check): Variable<string | F> {
  return {
    fallback: fallback ?? '–',
    unset: fallback,
    parse(value) {
      const form = check?.(value) ?? null;
      return form === null ? value : new Expected(form);
    },
  };
}

const checkSecret: Check = (value) =>
  value.includes(',') || value !== value.trim()
    ? 'a text without commas, and without spaces around it'
    : null;

/**
 * A secret that an operator chooses. After a rotation its value goes into a list, which is
 * separated by commas.
 */
export function secret(check = checkSecret) {
  return { ...text(null, check), minLength: MIN_SECRET };
}

/** `a, b,` holds a and b. */
export const splitList = (text: string) =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '');

/** Texts that commas separate. @param check of each */
export function list(check: Check = () => null): Variable<readonly string[]> {
  return {
    fallback: '–',
    unset: [],
    parse(value) {
      const items = splitList(value);
      const form = items.map(check).find(Boolean);
      return form ? new Expected(`a comma-separated list, each ${form}`) : items;
    },
  };
}

/** Users by name or by group, or all of them. */
export const userList = () =>
  list(matching(/^(?!group:)|^group:[a-z0-9._-]{1,64}$/, 'a username, group:NAME or *'));

/** Reports a list of users whom nothing can name. */
export function checkUserList(
  name: string,
  users: readonly string[],
  source: UserSource,
  { problems }: Findings,
) {
  const hasGroup = users.some((user) => user.startsWith('group:'));
  const header = hasGroup ? 'TRUSTED_GROUPS_HEADER' : 'TRUSTED_USER_HEADER';
  if (users.length === 0 || source[header] || source.SIGNIN_VERIFY_URL) return;
  problems.push(`${name} requires ${header} or SIGNIN_VERIFY_URL.`);
}

/**
 * The earlier values of a secret.
 * @param minLength 0 if they only decrypt: an error would prevent their replacement
 */
export const earlierSecrets = (
  minLength: number,
  check = checkSecret,
): Variable<readonly string[]> => ({ ...list(check), minLength });

/** @returns the values of a secret, the current one first; none without a current one */
export function secretValues(
  name: string,
  current: string | null,
  previous: readonly string[],
  { problems }: Findings,
): readonly string[] {
  if (current !== null) return [current, ...previous];
  if (previous.length > 0) problems.push(`${name}_PREVIOUS requires ${name}.`);
  return [];
}

export function oneOf<T extends string>(fallback: T, choices: readonly T[]): Variable<T> {
  return {
    fallback,
    unset: fallback,
    parse: (text) =>
      choices.find((choice) => choice === text) ?? new Expected(`one of ${choices.join(', ')}`),
  };
}

export function toggle(fallback: 'on' | 'off'): Variable<boolean> {
  return {
    fallback,
    unset: fallback === 'on',
    parse: (text) =>
      text === 'on' || text === 'off' ? text === 'on' : new Expected('one of on, off'),
  };
}

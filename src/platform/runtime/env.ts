import { readFileSync } from 'node:fs';
import { codeOf } from './errors.ts';
import { decodeUtf8 } from './text.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

/** Thrown by a parser. The message says what the value must be, as in "must be …". */
export class Expected extends Error {}

/** Makes a value of the text of a variable. @throws Expected */
export type Parser<T> = (text: string) => T;

/** A name that was asked, for the documentation. */
type Asked = Readonly<{ fallback: string; parse: Parser<unknown> }>;

export const MIN_SECRET = 16;
const ADVISED_SECRET = 32;
export const SECRET_ADVICE = 'make a long random one with: openssl rand -hex 32';

/**
 * Answers questions about variables. A variable is known because it was asked, so every question
 * must be asked, whatever the answers to others are. Problems stop the startup, warnings are
 * logged. One sentence each.
 */
export class Env {
  readonly environment: Environment;
  readonly asked = new Map<string, Asked>();
  readonly problems: string[] = [];
  readonly warnings: string[] = [];
  readonly #wrong = new Set<string>();

  constructor(environment: Environment) {
    this.environment = environment;
  }

  /**
   * The value of a variable. An empty one counts as unset, as in container files.
   * @param shown the fallback as the documentation shows it
   */
  get<T, F>(name: string, fallback: F, parse: Parser<T>, shown = shownAs(fallback)): T | F {
    this.asked.set(name, { fallback: shown, parse });
    const text = this.#textOf(name);
    if (text === null) return fallback;
    try {
      return parse(text);
    } catch (error) {
      this.problem(name, `must be ${formIn(error)}.`);
      return fallback;
    }
  }

  /**
   * A secret that an operator chooses. Guesses at it are fast: it is compared, or keys are derived
   * from it, without a slow hash. So it must be long.
   */
  secret(name: string, parse = secretText): string | null {
    const value = this.get(name, null, parse);
    if (value !== null) this.#checkLength(name, [value], MIN_SECRET);
    return value;
  }

  /**
   * The earlier values of a secret, in `name` + `_PREVIOUS`.
   * @param least 0 if they only decrypt: an error would prevent their replacement
   */
  previousSecrets(name: string, least: number, parse = secretText): readonly string[] {
    const values = this.get(`${name}_PREVIOUS`, [], list(parse));
    if (values.length > 0) this.#checkLength(`${name}_PREVIOUS`, values, least);
    return values;
  }

  /** The values of an optional secret, the current one first; none without a current one. */
  secrets(name: string): readonly string[] {
    const current = this.secret(name);
    const previous = this.previousSecrets(name, 0);
    if (current !== null) return [current, ...previous];
    if (previous.length > 0) this.problem(`${name}_PREVIOUS`, `requires ${name}.`);
    return [];
  }

  problem(name: string, text: string) {
    this.#wrong.add(name);
    this.problems.push(`${name} ${text}`);
  }

  /** Whether a problem with this variable is known, so that it is not also reported as missing. */
  isWrong(name: string) {
    return this.#wrong.has(name);
  }

  /**
   * `X_FILE` names a file that holds `X`. Editors and `echo` add a trailing newline, and some a
   * byte order mark: both are removed.
   */
  #textOf(name: string): string | null {
    const value = this.#given(name);
    const file = this.#given(`${name}_FILE`);
    if (file === null) return value;
    if (value !== null) {
      this.problem(name, `and ${name}_FILE are both set; remove one of them.`);
      return null;
    }
    try {
      return decodeUtf8(readFileSync(file)).replace(/^\ufeff|\r?\n$/g, '') || null;
    } catch (error) {
      this.#wrong.add(name);
      this.problem(`${name}_FILE`, `names a file that cannot be read (${codeOf(error)}).`);
      return null;
    }
  }

  /** A program that embeds the services may pass what is not a text. */
  #given(name: string): string | null {
    const value: unknown = this.environment[name];
    if (value === undefined || value === '') return null;
    if (typeof value === 'string') return value;
    this.problem(
      name,
      `must be given as a string, not as ${value === null ? 'null' : typeof value}.`,
    );
    return null;
  }

  #checkLength(name: string, values: readonly string[], least: number) {
    const length = Math.min(...values.map((value) => value.length));
    if (length < least && !this.get('ALLOW_WEAK_SECRETS', false, toggle)) {
      this.problem(
        name,
        `has fewer than ${least} characters; ${SECRET_ADVICE}. Only for tests, ALLOW_WEAK_SECRETS=on accepts it.`,
      );
    } else if (length < ADVISED_SECRET) {
      this.warnings.push(`${name} has fewer than ${ADVISED_SECRET} characters; ${SECRET_ADVICE}`);
    }
  }
}

function shownAs(fallback: unknown) {
  if (typeof fallback === 'boolean') return fallback ? 'on' : 'off';
  const isNothing = fallback === null || typeof fallback === 'object';
  return isNothing ? '–' : String(fallback);
}

/** What a parser has expected. Any other error is a mistake of the program. */
export function formIn(error: unknown) {
  if (error instanceof Expected) return error.message;
  throw error;
}

export const anyText: Parser<string> = (text) => text;

/** A text as it is. @param form what it must be */
export const satisfying =
  (isValid: (text: string) => boolean, form: string): Parser<string> =>
  (text) => {
    if (!isValid(text)) throw new Expected(form);
    return text;
  };

export const matching = (pattern: RegExp, form: string) =>
  satisfying((text) => pattern.test(text), form);

export function wholeNumber(min: number, max: number): Parser<number> {
  return (text) => {
    const value = /^[0-9]{1,10}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    throw new Expected(`a whole number from ${min} to ${max}`);
  };
}

/** A number, or 0 for no limit. */
export function zeroOr(min: number, max: number): Parser<number> {
  const parse = wholeNumber(min, max);
  return (text) => {
    if (text === '0') return 0;
    try {
      return parse(text);
    } catch (error) {
      throw new Expected(`0, or ${formIn(error)}`);
    }
  };
}

export const oneOf =
  <T extends string>(choices: readonly T[]): Parser<T> =>
  (text) => {
    const choice = choices.find((one) => one === text);
    if (choice === undefined) throw new Expected(`one of ${choices.join(', ')}`);
    return choice;
  };

const isOn = oneOf(['on', 'off']);
export const toggle: Parser<boolean> = (text) => isOn(text) === 'on';

/** After a rotation, a secret goes into a list, which is separated by commas. */
const secretText = satisfying(
  (text) => !text.includes(',') && text === text.trim(),
  'a text without commas, and without spaces around it',
);

/** `a, b,` holds a and b. */
export const splitList = (text: string) =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '');

/** Texts that commas separate. */
export const list =
  (parse: Parser<string> = anyText): Parser<readonly string[]> =>
  (text) => {
    try {
      return splitList(text).map(parse);
    } catch (error) {
      throw new Expected(`a comma-separated list, each ${formIn(error)}`);
    }
  };

/** What names the user of a request without a token: a proxy, or the identity service. */
export type UserSource = Readonly<
  Record<'TRUSTED_USER_HEADER' | 'TRUSTED_GROUPS_HEADER' | 'SIGNIN_VERIFY_URL', string | null>
>;

const userOrGroup = matching(
  /^(?!group:)|^group:[a-z0-9._-]{1,64}$/,
  'a username, group:NAME or *',
);

/** Users by name or by group, or all of them. Nothing may name users without such a source. */
export function readUsers(env: Env, name: string, source: UserSource): readonly string[] {
  const users = env.get(name, [], list(userOrGroup));
  const hasGroup = users.some((user) => user.startsWith('group:'));
  const header = hasGroup ? 'TRUSTED_GROUPS_HEADER' : 'TRUSTED_USER_HEADER';
  if (users.length > 0 && !source[header] && !source.SIGNIN_VERIFY_URL)
    env.problem(name, `requires ${header} or SIGNIN_VERIFY_URL.`);
  return users;
}

/** `administer` needs only the database. */
export type Purpose = 'serve' | 'administer';

/** What a service gets to read its settings, besides its own variables. */
export type SettingsInput<Address> = Readonly<{
  /** Reports a database that is not configured, and a connection to it that is not encrypted. */
  requireDatabase: () => Address;
  purpose: Purpose;
  /** The environment without Gatehouse's variables, for programs that a service starts. */
  foreign: Environment;
  userSource: UserSource;
}>;

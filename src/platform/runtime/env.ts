import { readFileSync } from 'node:fs';
import { codeOf } from './errors.ts';
import { decodeUtf8 } from './text.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

/** Thrown by a parser. The message says what the value must be, as in "must be …". */
export class Expected extends Error {}

/** Makes a value of the text of a variable. @throws Expected */
export type Parser<T> = (text: string) => T;

/** `administer` needs only the database. */
export type Purpose = 'serve' | 'administer';
type Need = 'required' | 'optional' | 'unused';

export const MIN_SECRET = 16;
const ADVISED_SECRET = 32;
const SECRET_ADVICE = 'make a long random one with: openssl rand -hex 32';

/**
 * Answers questions about variables. A variable is known because it was asked, so every question
 * must be asked, whatever the answers to others are.
 */
export class Env {
  readonly environment: Environment;
  /** The environment without Gatehouse's variables, for programs that a service starts. */
  readonly foreign: Environment;
  /** Each name that was asked, with its fallback. */
  readonly asked = new Map<string, unknown>();
  /** What stops the startup: one sentence for each wrong variable, by its name. */
  readonly problems = new Map<string, string>();
  /** What is only logged. One sentence each. */
  readonly warnings = new Set<string>();

  constructor(environment: Environment, foreign: Environment = {}) {
    this.environment = environment;
    this.foreign = foreign;
  }

  /**
   * The value of a variable. An empty one counts as unset, as in container files.
   * @param documented the fallback as the documentation shows it
   */
  get<T, F>(name: string, fallback: F, parse: Parser<T>, documented: unknown = fallback): T | F {
    return this.exact(name, fallback, (text) => parse(text.trim()), documented);
  }

  /** A secret: spaces around it are not removed. */
  exact<T, F>(name: string, fallback: F, parse: Parser<T>, documented: unknown = fallback): T | F {
    this.asked.set(name, documented);
    const text = this.#textOf(name);
    if (text === null) return fallback;
    try {
      return parse(text);
    } catch (error) {
      this.problem(name, `must be ${formIn(error)}.`);
      return fallback;
    }
  }

  text<F>(name: string, fallback: F) {
    return this.get(name, fallback, anyText);
  }

  number<F>(name: string, fallback: F, min: number, max: number, documented?: unknown) {
    return this.get(name, fallback, wholeNumber(min, max), documented);
  }

  isOn(name: string, fallback = false) {
    return this.get(name, fallback ? 'on' : 'off', oneOf(['on', 'off'])) === 'on';
  }

  isSet(name: string) {
    return this.#textOf(name) !== null || this.problems.has(name);
  }

  /**
   * A secret that an operator chooses. Guesses at it are fast: it is compared, or keys are derived
   * from it, without a slow hash. So it must be long.
   */
  secret(name: string, parse = secretText) {
    const value = this.exact(name, null, parse);
    if (value !== null) this.#checkLength(name, [value], MIN_SECRET);
    return value;
  }

  /**
   * The values of a secret: the current one first, then the earlier ones in `name` + `_PREVIOUS`.
   * None if it is not set.
   * @param need `unused`: a command, which may run without it
   * @param leastPrevious 0 if earlier ones only decrypt: an error would prevent their replacement
   */
  secrets(name: string, need: Need = 'optional', parse = secretText, leastPrevious = 0) {
    const current = this.secret(name, parse);
    if (need === 'required' && current === null)
      this.problem(name, `must be set; ${SECRET_ADVICE}`);
    const previous = this.get(`${name}_PREVIOUS`, [], list(parse));
    this.#checkLength(`${name}_PREVIOUS`, previous, leastPrevious);
    if (current !== null) return [current, ...previous];
    const isUseless = need !== 'unused' && previous.length > 0;
    if (isUseless) this.problem(`${name}_PREVIOUS`, `requires ${name}.`, name);
    return [];
  }

  /**
   * Says what is wrong with a variable: once, although several services may ask for it.
   * @param others on which it depends: if one of these is wrong, only that is said
   */
  problem(name: string, text: string, ...others: readonly string[]) {
    const isKnown = [name, ...others].some((one) => this.problems.has(one));
    if (!isKnown) this.problems.set(name, `${name} ${text}`);
  }

  /** `X_FILE` names a file that holds `X`. */
  #textOf(name: string) {
    const value = this.#given(name);
    const file = this.#given(`${name}_FILE`);
    if (file === null) return value;
    if (value !== null) {
      this.problem(name, `and ${name}_FILE are both set; remove one of them.`);
      return null;
    }
    try {
      return this.#withoutEnds(name, decodeUtf8(readFileSync(file.trim())));
    } catch (error) {
      const reason =
        error instanceof TypeError ? 'is not UTF-8' : `cannot be read (${codeOf(error)})`;
      this.problems.set(name, `${name}_FILE names a file that ${reason}.`);
      return null;
    }
  }

  /**
   * Editors and `echo` add a line end, and some a byte order mark. Files of variables for Docker,
   * Kubernetes or a shell may have both. Quotation marks could be meant: they are refused.
   */
  #withoutEnds(name: string, text: string) {
    const bare = text.replace(/^\ufeff|(\r\n|\r|\n)$/g, '');
    if (!/^\s*(["'])[^]*\1\s*$/.test(bare)) return bare || null;
    this.problem(
      name,
      'is in quotation marks. Remove them: "docker --env-file", for example, makes them a part of the value.',
    );
    return null;
  }

  /** A program that embeds the services may pass what is not a text. */
  #given(name: string) {
    const value: unknown = this.environment[name];
    if (value === undefined) return null;
    if (typeof value === 'string') return this.#withoutEnds(name, value);
    const kind = value === null ? 'null' : typeof value;
    this.problem(name, `must be given as a string, not as ${kind}.`);
    return null;
  }

  #checkLength(name: string, values: readonly string[], least: number) {
    const length = Math.min(...values.map((value) => value.length));
    const form = (limit: number) => `has fewer than ${limit} characters; ${SECRET_ADVICE}`;
    const isWeak = length < least && !this.isOn('ALLOW_WEAK_SECRETS');
    if (isWeak)
      this.problem(name, `${form(least)}. Only for tests, ALLOW_WEAK_SECRETS=on accepts it.`);
    else if (length < ADVISED_SECRET) this.warnings.add(`${name} ${form(ADVISED_SECRET)}`);
  }
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

export const oneOf =
  <T extends string>(choices: readonly T[]): Parser<T> =>
  (text) => {
    const choice = choices.find((one) => one === text);
    if (choice === undefined) throw new Expected(`one of ${choices.join(', ')}`);
    return choice;
  };

export const exactText = satisfying(
  (text) => text === text.trim(),
  'a text without spaces around it',
);

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

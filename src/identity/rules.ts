import { readFileSync } from 'node:fs';
import {
  type JsonSchema,
  type Pattern,
  scalar,
  type Schema,
  text,
  withDefault,
} from '../platform/http/route/schema.ts';
import { splitList } from '../platform/runtime/env.ts';
import { isStreamSafe } from '../platform/runtime/text.ts';
import { KEY_RIGHTS, type KeyRight, type User } from './model.ts';
import { foldText, MAX_NAME_LENGTH, UNSEEN } from './names.ts';

/** What names, addresses and new passwords may be. Pure functions, used by the settings as well. */

const INVISIBLE = new RegExp(`[${UNSEEN}]`, 'u');
const BLANK = new RegExp(`^[\\s${UNSEEN}]+$`, 'u');

/** Line separators and characters that change the direction of a text count as well. */
export const withoutControls: Pattern = {
  form: /^[^\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]*$/,
  problem: 'must not contain control characters',
};

const patternError = ({ form, problem }: Pattern, value: string) =>
  form.test(value) ? null : problem;

const markError = (value: string) =>
  isStreamSafe(value) ? null : 'must have at most 30 combining marks in a row';

function nameError(name: string) {
  // Otherwise two names could look the same.
  if (INVISIBLE.test(name)) return 'must not contain invisible characters';
  const error = patternError(withoutControls, name) ?? markError(name);
  if (error !== null) return error;
  // NFKC expands some characters; an index entry takes about 2,700 bytes.
  return Buffer.byteLength(foldText(name)) > 1_024 ? 'is too long' : null;
}

/**
 * @returns why a username is rejected, or null: it must be safe in a header, a log and a terminal
 */
export const usernameError = (username: string) =>
  username === username.trim() ? nameError(username) : 'must not begin or end with a space';

/** Rejects only what cannot be an address. Whether it works shows when it is used. */
const EMAIL: Pattern = {
  form: /^[^\s@]+@[^\s@]+$/,
  problem: 'must be an e-mail address, such as ada@example.org',
};

/**
 * The name of a person or a thing. Invisible characters are allowed, because they join emoji and
 * the letters of some scripts.
 * @param min 1 if it is required
 */
export function shownName(max: number, min: 0 | 1, more: Readonly<{ description?: string }> = {}) {
  const blank = `must ${min === 0 ? 'be empty or ' : ''}have a visible character`;
  const check = (name: string) => markError(name) ?? (BLANK.test(name) ? blank : null);
  return text({ ...more, min, max, pattern: withoutControls, check });
}

const personName = shownName(MAX_NAME_LENGTH, 0);

export const nameSchemas = {
  username: text({ min: 1, max: MAX_NAME_LENGTH, check: usernameError }),
  email: text({ min: 3, max: MAX_NAME_LENGTH, pattern: EMAIL, check: nameError }),
  first_name: personName,
  last_name: personName,
};

/** A new user may be without a first and a last name. */
export const newNameSchemas = {
  ...nameSchemas,
  first_name: withDefault(nameSchemas.first_name, ''),
  last_name: withDefault(nameSchemas.last_name, ''),
};

const NAME_FORM = '[a-z0-9._-]{1,64}';
const NAME_CHARACTERS = '1 to 64 characters of a-z, 0-9, ".", "_" and "-"';
const GROUP_NAME: Pattern = {
  form: new RegExp(`^${NAME_FORM}$`),
  problem: `must have ${NAME_CHARACTERS}`,
};
const SCOPE_FORM = '[a-z0-9._:-]{1,64}';

export const isGroupName = (name: unknown): name is string =>
  typeof name === 'string' && GROUP_NAME.form.test(name);

/** The name of a group, which may have no member. */
export const group = text({ pattern: GROUP_NAME });

/** What a rule of forward authentication requires: one of the kinds, or a group. */
export const ruleForm = (kinds: readonly string[]) =>
  new RegExp(`^(${kinds.join('|')}|group:${NAME_FORM}|scope:${SCOPE_FORM})$`);

/** Names in an array, sorted. @param named what they must be */
const namesOf = <Name extends string>(
  items: JsonSchema,
  isName: (name: unknown) => name is Name,
  named: string,
  max: number,
): Schema<readonly Name[]> => ({
  jsonSchema: { type: 'array', items, maxItems: max, uniqueItems: true },
  read(input, at, reject) {
    if (!Array.isArray(input)) return reject(at, 'must be an array of names');
    const names = input.filter(isName);
    if (names.length < input.length) return reject(at, `must be names of ${named}`);
    if (names.length > max) return reject(at, `must be at most ${max} names`);
    if (new Set(names).size < names.length) return reject(at, 'must not have a name twice');
    return names.sort();
  },
});

const groupItems = { type: 'string', pattern: GROUP_NAME.form.source };
export const groups = namesOf(groupItems, isGroupName, NAME_CHARACTERS, 64);

const isRight = (name: unknown): name is KeyRight => KEY_RIGHTS.some((right) => right === name);
/** What a key may do. */
export const rights = namesOf(
  { type: 'string', enum: KEY_RIGHTS },
  isRight,
  KEY_RIGHTS.join(', '),
  KEY_RIGHTS.length,
);

const scopePattern = new RegExp(`^${SCOPE_FORM}$`);
const isScope = (name: unknown): name is string =>
  typeof name === 'string' && scopePattern.test(name);
/** Of programs, such as `orders:read`. As few as a header of a proxy can hold beside the groups. */
export const scopes = namesOf(
  { type: 'string', pattern: scopePattern.source },
  isScope,
  `${NAME_CHARACTERS}, or ":"`,
  32,
);

/** The same as a text, with commas between the names. */
const asText = <Name extends string>(
  names: Schema<readonly Name[]>,
  what: string,
): Schema<readonly Name[]> => ({
  jsonSchema: { type: 'string', description: `Names of ${what}, with commas between them` },
  read: (input, at, reject) => names.read(splitList(String(input)), at, reject),
});
export const groupList = asText(groups, 'groups');
export const scopeList = asText(scopes, 'scopes');

const WORDS_OF_CHOICE = new Map([
  ['true', true],
  ['false', false],
]);
/** A boolean as the field of a form. */
export const choice = scalar(
  { type: 'string', enum: [...WORDS_OF_CHOICE.keys()] },
  'must be true or false',
  (input) => WORDS_OF_CHOICE.get(String(input)),
);

/** A user's own names, of which a password must not consist. */
export type Names = Pick<User, 'username' | 'email'> &
  Partial<Pick<User, 'first_name' | 'last_name'>>;

/** Lengths count code points (NIST SP 800-63B). There are no composition rules (ASVS 6.2.5). */
const PASSWORD_MAX_LENGTH = 1_024;
/** In UTF-16 units, before NFKC, which makes one code point of up to four of them. */
export const PASSWORD_MAX_UNITS = 4 * PASSWORD_MAX_LENGTH;
/**
 * For a body with so many passwords. In a form, and escaped in JSON, a character takes up to 12
 * bytes.
 */
export const bytesOfPasswords = (count: number) => 8 * 1024 + count * 12 * PASSWORD_MAX_LENGTH;
const WORDS = [
  'gatehouse',
  'identity',
  'secret',
  'secrets',
  'webhook',
  'admin',
  'administrator',
  'user',
  'password',
];

/** @returns why a new password is rejected, or null */
export function passwordError(
  password: string,
  { minLength, words }: Readonly<{ minLength: number; words: readonly string[] }>,
  names: Names,
) {
  const tooLong = `must have at most ${PASSWORD_MAX_LENGTH} characters`;
  if (password.length > PASSWORD_MAX_UNITS) return tooLong;
  const error = markError(password);
  if (error !== null) return error;
  const characters = [...password.normalize('NFKC')];
  if (characters.length < minLength) return `must have at least ${minLength} characters`;
  if (characters.length > PASSWORD_MAX_LENGTH) return tooLong;
  if (password.includes('\0')) return 'must not contain the character U+0000';
  const key = foldText(password);
  if (commonPasswords().includes(`\n${key}\n`))
    return 'is among the most common passwords; choose another';
  if (new Set(key).size === 1)
    return 'must not repeat one character; choose several unrelated words';
  const { username, email, first_name: first = '', last_name: last = '' } = names;
  if (!consistsOf(key, [username, email, first, last, ...WORDS, ...words])) return null;
  return 'must not consist of names of the user or the service; choose several unrelated words';
}

/**
 * Whether no other letters are left, as in `Gatehouse-1` (ASVS 6.2.11). A passphrase may contain
 * these words.
 */
function consistsOf(key: string, words: readonly string[]) {
  const keys = words.map(foldText);
  const lettersOf = (text: string) => text.match(/[\p{L}\p{M}]+/gu) ?? [];
  // Parts of one or two letters of an id, such as `u3x0cd`, are not words.
  const parts = keys
    .flatMap(lettersOf)
    .filter(({ length }) => length > 2)
    .sort((a, b) => b.length - a.length);
  const letters = lettersOf(key).join('');
  const rest = parts.reduce((left, part) => left.replaceAll(part, ' '), letters);
  // A name without letters, such as a telephone number, counts as a whole.
  return (letters !== '' && rest.trim() === '') || keys.includes(key);
}

let common: string | null = null;

/**
 * The 3,000 most common passwords of at least eight characters, in lower case, between newlines
 * (ASVS 6.2.4). Source: the ten million passwords that Mark Burnett published in 2015, as ranked in
 * zxcvbn 4.4.2. Read at the first use and kept, as one text: an array of strings would take four
 * times as much memory.
 */
export function commonPasswords() {
  common ??= `\n${readFileSync(new URL('common-passwords.txt', import.meta.url), 'utf8')}`;
  return common;
}

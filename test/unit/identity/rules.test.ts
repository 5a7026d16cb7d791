/** Which names are one account, and which names, addresses and new passwords are rejected. */
import assert from 'node:assert/strict';
import { validateHeaderValue } from 'node:http';
import { test } from 'node:test';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { oneLine, type Schema, text, validate } from '../../../src/platform/http/route/schema.ts';
import { accountKey, typedCode } from '../../../src/identity/names.ts';
import {
  commonPasswords,
  nameSchemas,
  passwordError,
  usernameError,
  withoutControls,
} from '../../../src/identity/rules.ts';
import { headerValue } from '../../../src/identity/verify.ts';
import { LONG_RUN, longestRunNormalized } from '../../support/normalized.ts';
import { wordsOf } from '../../support/words.ts';

const SAME_ACCOUNT: ReadonlyArray<readonly [string, ...string[]]> = [
  ['admin', 'ADMIN', 'Ａｄｍｉｎ', '𝐚𝐝𝐦𝐢𝐧', 'ⓐⓓⓜⓘⓝ'],
  ['admin', ' admin\u00a0', '\ufeffADMIN\r\n', 'ad\u00admin'],
  ['jürgen', 'JÜRGEN', 'ju\u0308rgen', 'JU\u0308RGEN'],
  ['file', 'ﬁle', 'FILE'],
  ['ångström', '\u212bngström'],
  ['kelvin', '\u212aelvin'],
  ['имя', 'ИМЯ'],
  ['strasse', 'straße', 'STRASSE', 'STRAẞE'],
  ['σίσυφος', 'ΣΊΣΥΦΟΣ', 'σίσυφοσ', 'ςίςυφος'],
  ['istanbul', 'İstanbul', 'ıstanbul', 'ISTANBUL', 'i\u0307stanbul', 'I\u0307STANBUL'],
  ['ﬀ', 'FF', 'ff'],
  ['ꭰꭱ', 'ᎠᎡ'],
  ['ŉa', 'ʼna', 'ʼNA'],
  ['ᾳ', 'ΑΙ', 'αι', 'ᾼ'],
  ['ſam', 'SAM'],
  ['user①', 'USER1'],
  ['ann-marie 7', 'Ann\u2011Marie  7', 'ANN–MARIE\u3000٧', 'ann\u2212marie ７'],
  ["o'neill", 'O’Neill', 'o\u02bcneill', 'O＇NEILL'],
  ['a@münchen.example', 'A@MÜNCHEN.example', 'a@xn--mnchen-3ya.example', 'ａ＠münchen。example'],
  ['a@strasse.example', 'a@straße.example', 'a@xn--strae-oqa.example'],
  // No code point for the capital with its mark: it stays two, and its small form must become one.
  ['aΪ\u0301b', 'a\u0390b'],
  ['J\u030c', '\u01f0'],
  ['W\u030a', '\u1e98'],
];

test('a name is one account, however it is typed', () => {
  for (const [name, ...others] of SAME_ACCOUNT) {
    for (const other of others) assert.equal(accountKey(other), accountKey(name), other);
    assert.equal(accountKey(accountKey(name)), accountKey(name));
  }
});

test('a key of a key is the key, and names that only look alike are different accounts', () => {
  for (let code = 0; code <= 0x10ffff; code += 1) {
    if (code >= 0xd800 && code <= 0xdfff) continue;
    const character = String.fromCodePoint(code);
    const key = accountKey(character);
    if (key !== character) assert.equal(accountKey(key), key, code.toString(16));
  }
  const names = ['admin', 'аdmin', 'adrnin', 'admìn', 'a dmin', 'admin1', ''];
  assert.equal(new Set(names.map(accountKey)).size, names.length);
});

test('the digits of every script are those of ASCII', () => {
  const written = Intl.supportedValuesOf('numberingSystem').map((system) =>
    new Intl.NumberFormat(`en-u-nu-${system}`, { useGrouping: false }).format(9_876_543_210),
  );
  const decimal = written.filter((digits) => /^\p{Nd}{10}$/u.test(digits));
  assert.ok(decimal.length > 60);
  for (const digits of decimal) assert.equal(typedCode(digits), '9876543210', digits);
});

test('a text of more than 255 UTF-16 units or 30 marks in a row has the key of no name', () => {
  for (const [name, isNoName] of [
    ['n'.repeat(255), false],
    ['n'.repeat(256), true],
    ['𝐧'.repeat(128), true],
    [`x${'\u0323'.repeat(30)}`, false],
    [`x${'\u0323'.repeat(31)}`, true],
    [`\uff76${'\uff9e'.repeat(31)}`, true],
  ] as const)
    assert.equal(accountKey(name) === `\u0001${name}`, isNoName, `${name[0]} (${name.length})`);
});

test('a dot above is removed from every i and j, through other marks', () => {
  for (const [name, key] of [
    ['i\u0323\u0307', '\u1ecb'],
    ['J\u0307\u0301\u0307x', 'j\u0301x'],
    ['i\u0307a\u0307', 'i\u0227'],
  ] as const)
    assert.equal(accountKey(name), key, name);
});

/** @returns a function that says why a text is rejected, or null */
const errorIn = (schema: Schema<string>) => (value: string) => {
  const read = validate(schema, value, 'invalid_body');
  return read instanceof Failure ? (read.details.fields?.[0]?.message ?? '') : null;
};
const controlError = errorIn(text({ pattern: withoutControls }));
const emailError = errorIn(nameSchemas.email);
const personNameError = errorIn(nameSchemas.first_name);

const CONTROLS =
  '\0\x01\b\t\n\r\x1b\x7f\u0080\u0085\u009b\u061c\u200e\u200f\u202a\u202e\u2066\u2069';
/**
 * Format characters, tags, Hangul fillers, the grapheme joiner, variation selectors, and others.
 */
const UNSEEN =
  '\u200b\u200c\u200d\u200e\u202e\u00ad\u2060\u2064\ufeff\u{e0041}\u2800\u115f\u1160\u3164' +
  '\uffa0\u034f\u17b4\u180b\ufe00\ufe0f\u{e0100}\u{1d159}\u{13441}';
const CONTROL = 'must not contain control characters';

/** Every character that there is, many in a row. */
const EVERYTHING = Array.from({ length: 0x110000 / 0x400 }, (_, block) =>
  Array.from({ length: 0x400 }, (_one, index) => String.fromCodePoint(block * 0x400 + index))
    .join('')
    .replace(/[\ud800-\udfff]/gu, ''),
);

test('the patterns of one line reject exactly the characters of these classes', () => {
  const units = Array.from({ length: 0x10000 }, (_, code) => String.fromCharCode(code));
  for (const [{ form }, rejected] of [
    [withoutControls, /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u],
    [oneLine, /[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]/u],
  ] as const) {
    const differing = [...units, ...EVERYTHING.slice(64)].filter(
      (characters) => form.test(characters) === rejected.test(characters),
    );
    assert.deepEqual(differing, []);
  }
  for (const character of CONTROLS) assert.equal(controlError(`a${character}b`), CONTROL);
});

/** Each reason, or null, with what has it. */
type Verdicts = ReadonlyArray<readonly [error: string | null, values: readonly string[]]>;

const NAMES: Verdicts = [
  [null, ['', 'Ada', ' Ada', '👩‍💻', 'می‌خواهم', '\u2800a', '名前', '🏴\u{e0067}\u{e0062}\u{e007f}']],
  [
    'must be empty or have a visible character',
    [...' \u00a0\u3000\u2800\u115f\u3164\u200b\ufeff\u{e0041}\u{1d159}', ' \u200d\u2800 '],
  ],
  [CONTROL, ['a\nb', 'a\u2028b']],
  [null, [`x${'\u0323'.repeat(30)}`]],
  ['must have at most 30 combining marks in a row', [`x${'\u0323'.repeat(31)}`]],
];

// U+FDFA is a whole sentence in one character, and 33 bytes when it is compared.
const LONG = '\ufdfa'.repeat(60);
const USERNAMES: Verdicts = [
  [null, ['admin', 'ada@example.org', 'a b', 'żółć', '名前', '🔑', "o'x", '-x', '../x', '<b>']],
  [null, ['x'.repeat(255), '名'.repeat(255), `x${'\u0323'.repeat(30)}`]],
  [
    'must not begin or end with a space',
    [...' \u00a0\u3000\ufeff\t\n\u2028'].flatMap((space) => [`${space}a`, `a${space}`, space]),
  ],
  ['must not contain invisible characters', [...UNSEEN].map((one) => `ad${one}min`)],
  [CONTROL, ['ad\0min', 'ad\u0085min', 'ad\u2028min']],
  ['must have at most 30 combining marks in a row', [`x${'\u0323'.repeat(31)}`]],
  ['is too long', [LONG]],
];

const EMAILS: Verdicts = [
  [null, wordsOf("admin@localhost a+b.c@d o'x@example.org ü@ü 名@例え a@[::1]")],
  [null, [`${'ж'.repeat(253)}@b`]],
  ['must have at least 3 characters', ['', '@', 'a', 'a@', '@a']],
  [
    'must be an e-mail address, such as ada@example.org',
    ['@ab', 'ab@', 'a@b@c', 'a b@c', 'a@b c', ' a@b', 'a@b ', 'a@b\n', 'a@\u00a0b', 'a@b, c@d'],
  ],
  [CONTROL, [...'\0\x1b\x7f\u009b'].map((one) => `a${one}@b`)],
  ['must not contain invisible characters', ['a\u200b@b']],
  ['must have at most 30 combining marks in a row', [`a@${'\u0323'.repeat(31)}.org`]],
  ['is too long', [`${LONG}@b`]],
];

for (const [what, errorOf, verdicts] of [
  ['a first or last name is empty or visible', personNameError, NAMES],
  ['a username has no invisible characters and no spaces around it', usernameError, USERNAMES],
  ['an e-mail address has something, one @ and something', emailError, EMAILS],
] as const)
  test(what, () => {
    for (const [error, values] of verdicts) {
      for (const value of values) assert.equal(errorOf(value), error, JSON.stringify(value));
    }
  });

test('a name in a header is encoded as safe ASCII and decodes to the name', () => {
  const split = 'ada\r\nX-Auth-Super-Admin: true';
  for (const name of ['', 'ada', "o'x", '100 %', '%41', 'a%2', '🔑', split, ...EVERYTHING]) {
    const value = headerValue(name);
    assert.equal(decodeURIComponent(value), name, JSON.stringify(name.slice(0, 40)));
    assert.match(value, /^(?![^]*[",;:()<>[\]\\])[\x20-\x7e]*$/);
    assert.doesNotThrow(() => validateHeaderValue('X-Auth-Username', value));
  }
  assert.equal(headerValue('ada.b-c_d+e@example.org'), 'ada.b-c_d+e@example.org');
  assert.equal(headerValue('Zoë, 50 %'), 'Zo%C3%AB%2C 50 %25');
});

const ADA = {
  username: 'ada.lovelace',
  email: 'ada@example.org',
  first_name: 'Ada',
  last_name: 'King',
};
const RULES = { minLength: 8, words: ['Acme Rockets', 'αίνος'] };
const errorOf = (password: string, names: Parameters<typeof passwordError>[2] = ADA) =>
  passwordError(password, RULES, names);
const TOO_LONG = 'must have at most 1024 characters';
const FOUR_UNITS = '\u1f82'.normalize('NFD');

/** Lengths count code points, after NFKC. There are no rules of composition. */
const PASSWORDS: Verdicts = [
  ['must have at least 8 characters', ['', '1234567', '🔑'.repeat(7), 'e\u0301'.repeat(7)]],
  [null, ['83017462', '🔑🗝'.repeat(4), 'e\u0301x'.repeat(4), 'ﬃ'.repeat(3)]],
  [null, ['xy'.repeat(512), '🔑🗝'.repeat(512), 'e\u0301x'.repeat(512), FOUR_UNITS.repeat(1_024)]],
  [TOO_LONG, ['x'.repeat(1_025), '🔑'.repeat(1_025), 'ﬃ'.repeat(342), FOUR_UNITS.repeat(1_025)]],
  [null, [`passage ${'\u0323'.repeat(30)}y`]],
  ['must have at most 30 combining marks in a row', [`passage ${'\u0323'.repeat(31)}y`]],
  [
    null,
    ['onlysmalllettershere', 'ONLYCAPITALSHERE', '8301746529', '!!!!????....', 'ein ganzer satz'],
  ],
  ['must not contain the character U+0000', ['\0 before', 'a password\0', '\0'.repeat(8)]],
  [null, ['password, but longer', 'assword123', 'wertyuiop']],
  [
    'must not repeat one character; choose several unrelated words',
    ['xXxXxXxX', 'ｘxｘxｘxｘx', '🔑'.repeat(20), ' '.repeat(8)],
  ],
  [
    'must not consist of names of the user or the service; choose several unrelated words',
    [
      ...['ada king 1815!', 'Gatehouse!!'],
      ...wordsOf(`
        ada.lovelace ADA_LOVELACE Lovelace-1815 ada@example.org ada12345 adaadaada example99
        gatehouse1 ＧＡＴＥＨＯＵＳＥ gate-house admin@gatehouse 2024webhook identity.secrets
        acmerockets Rockets99 ACME-2024 ΑΊΝΟΣ2024 ΑΊΝΟΣΑΊΝΟΣ
      `),
    ],
  ],
  [null, ['lovelaces', 'my gatehouse', 'administrators', 'ada and the king', 'gatehouse κήπος']],
];

test('a new password is rejected for its length, its characters or its words, and nothing else', () => {
  for (const [error, passwords] of PASSWORDS) {
    for (const password of passwords) assert.equal(errorOf(password), error, password.slice(0, 40));
  }
  const longer = { ...RULES, minLength: 12 };
  assert.equal(passwordError('83017462830', longer, ADA), 'must have at least 12 characters');
  assert.equal(passwordError('830174628301', longer, ADA), null);
});

test('parts of a name of one or two letters are no words, and a name without letters is one', () => {
  const short = { ...ADA, username: 'u3x0cd', email: '1@x.yz' };
  for (const password of ['banana12', '11229384', 'xyxyxyx8 b', '0b3cd7e1f2a94c5d'])
    assert.equal(errorOf(password, short), null, password);
  const digits = { username: '+49 30 1234567', email: '7@example.org' };
  assert.match(errorOf('+49 30 1234567', digits) ?? '', /^must not consist of names/);
  assert.equal(errorOf('+49 30 7654321', digits), null);
});

test('the 3,000 most common passwords are rejected, in any case and width', () => {
  const common = commonPasswords().trim().split('\n');
  assert.deepEqual([common.length, new Set(common).size], [3_000, 3_000]);
  const expected = 'is among the most common passwords; choose another';
  const fullWidth = (word: string) =>
    word.replace(/[!-~]/g, (character) => String.fromCharCode(character.charCodeAt(0) + 0xfee0));
  const varied = common.slice(0, 100).flatMap((word) => [word.toUpperCase(), fullWidth(word)]);
  for (const word of [...common, ...varied]) assert.equal(errorOf(word), expected, word);
  for (const word of ['password', '12345678', 'qwertyuiop', 'iloveyou', 'password123'])
    assert.ok(common.includes(word), word);
});

test('what a new password costs: no long run of marks is normalized, and it is folded once', async (t) => {
  const longest = await longestRunNormalized(() => errorOf(LONG_RUN));
  assert.ok(longest <= 30, `a run of ${longest}`);
  const password = 'an unrelated passphrase 7';
  const fold = t.mock.method(String.prototype, 'toUpperCase');
  assert.equal(errorOf(password), null);
  const folded = fold.mock.calls.filter((call) => String(call.this) === password);
  assert.equal(folded.length, 1);
});

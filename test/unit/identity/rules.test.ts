/** Which names and addresses are rejected, and how they are written in a header. */
import assert from 'node:assert/strict';
import { validateHeaderValue } from 'node:http';
import { test } from 'node:test';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { oneLine, type Schema, text, validate } from '../../../src/platform/http/route/schema.ts';
import { nameSchemas, usernameError, withoutControls } from '../../../src/identity/rules.ts';
import { headerValue } from '../../../src/identity/verify.ts';

/** @returns a function that says why a text is rejected, or null */
const errorIn = (schema: Schema<string>) => (value: string) => {
  const read = validate(schema, value, 'invalid_body');
  return read instanceof Failure ? read.details.fields?.[0]?.message : null;
};
const controlCharError = errorIn(text({ pattern: withoutControls }));
const emailError = errorIn(nameSchemas.email);
const personNameError = errorIn(nameSchemas.first_name);

const CONTROLS =
  '\0\x01\b\t\n\r\x1b\x7f\u0080\u0085\u009b\u061c\u200e\u200f\u202a\u202e\u2066\u2069';
/** Format characters, tags, Hangul fillers, the grapheme joiner, variation selectors, and others. */
const UNSEEN =
  '\u200b\u200c\u200d\u200e\u202e\u00ad\u2060\u2064\ufeff\u{e0041}\u2800\u115f\u1160\u3164' +
  '\uffa0\u034f\u17b4\u180b\ufe00\ufe0f\u{e0100}\u{1d159}\u{13441}';
const CONTROL_FAULT = 'must not contain control characters';

test('control characters are found wherever they stand', () => {
  for (const character of CONTROLS) {
    for (const value of [character, `a${character}b`, `${character}a`, `a${character}`])
      assert.equal(controlCharError(value), CONTROL_FAULT, JSON.stringify(value));
  }
  for (const value of ['a\u2028b', 'a\u2029b'])
    assert.equal(
      controlCharError(value),
      CONTROL_FAULT,
      'it would begin a line of its own in a log',
    );
  for (const value of ['', 'a', ' a ', 'é', 'имя', '名前', '🔑', '👩‍💻', '\u00a0'])
    assert.equal(controlCharError(value), null, value);
});

test('the patterns of one line reject exactly the characters of these classes', () => {
  for (const [{ form }, rejected] of [
    [withoutControls, /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u],
    [oneLine, /[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]/u],
  ] as const) {
    const texts = Array.from({ length: 0x10000 }, (_, code) => String.fromCodePoint(code));
    const others = [...everything()].slice(0x10000 / 0x400 - 2);
    const differing = [...texts, ...others].filter(
      (text) => form.test(text) === rejected.test(text),
    );
    assert.deepEqual(differing, []);
  }
});

test('a first or last name is empty or visible', () => {
  const spaces = [...' \u00a0\u3000\u2800\u115f\u3164\uffa0\u200b\u00ad\ufeff\u{e0041}\u{1d159}'];
  const blank = [...spaces, ' \u200d\u2800 ', '\u3164 \u200d'];
  for (const name of blank)
    assert.equal(
      personNameError(name),
      'must be empty or have a visible character',
      JSON.stringify(name),
    );
  for (const name of [
    '',
    'Ada',
    ' Ada',
    '👩‍💻',
    'می‌خواهم',
    '\u2800a',
    '名前',
    '🏴\u{e0067}\u{e0062}\u{e007f}',
  ])
    assert.equal(personNameError(name), null, name);
  assert.equal(personNameError('a\nb'), CONTROL_FAULT);
});

test('a username has no control or invisible characters and no spaces around it', () => {
  for (const name of [
    'admin',
    'ada@example.org',
    'a b',
    'żółć',
    '名前',
    '🔑',
    'x'.repeat(255),
    "o'x",
    '-x',
    '../x',
    '<b>',
  ])
    assert.equal(usernameError(name), null, name);
  for (const space of ' \u00a0\u2003\u3000\ufeff\t\n\u2028') {
    for (const name of [`${space}admin`, `admin${space}`, space])
      assert.equal(usernameError(name), 'must not begin or end with a space', JSON.stringify(name));
  }
  for (const character of CONTROLS)
    assert.notEqual(usernameError(`ad${character}min`), null, JSON.stringify(character));
  for (const character of UNSEEN)
    assert.equal(
      usernameError(`ad${character}min`),
      'must not contain invisible characters',
      JSON.stringify(character),
    );
  assert.equal(usernameError(`ad\0min`), CONTROL_FAULT);
});

test('an e-mail address has something, one @ and something', () => {
  for (const email of [
    'admin@localhost',
    'ada@example.org',
    'a+b.c@d',
    "o'x@example.org",
    'ü@ü',
    '名@例え',
    'a@[::1]',
  ])
    assert.equal(emailError(email), null, email);
  for (const email of ['', '@', 'a', 'a@', '@a'])
    assert.equal(emailError(email), 'must have at least 3 characters', email);
  for (const email of [
    '@ab',
    'ab@',
    'a@b@c',
    'a b@c',
    'a@b c',
    ' a@b',
    'a@b ',
    'a@b\n',
    'a@\u00a0b',
    'a\t@b',
    'a@b, c@d',
  ]) {
    assert.equal(
      emailError(email),
      'must be an e-mail address, such as ada@example.org',
      JSON.stringify(email),
    );
  }
  for (const character of ['\0', '\x1b', '\x7f', '\u009b'])
    assert.equal(emailError(`a${character}@b`), CONTROL_FAULT, JSON.stringify(character));
  for (const character of CONTROLS + UNSEEN)
    assert.notEqual(emailError(`a${character}b@c`), null, JSON.stringify(character));
});

// U+FDFA is a whole sentence in one character, and 33 bytes when it is compared.
test('a name or address whose key exceeds the index limit is rejected', () => {
  const long = '\ufdfa'.repeat(60);
  assert.deepEqual([usernameError(long), emailError(`${long}@b`)], ['is too long', 'is too long']);
  for (const name of ['x'.repeat(255), 'ж'.repeat(255), '名'.repeat(255)])
    assert.equal(usernameError(name), null);
  assert.equal(emailError(`${'ж'.repeat(253)}@b`), null);
});

/** Every character that there is, many in a row. */
function* everything(): Generator<string> {
  for (let start = 0; start <= 0x10ffff; start += 0x400) {
    const codes = Array.from({ length: 0x400 }, (_, index) => start + index).filter(
      (code) => code < 0xd800 || code > 0xdfff,
    );
    if (codes.length > 0) yield String.fromCodePoint(...codes);
  }
}

test('a name in a header is encoded as safe ASCII and decodes to the name', () => {
  for (const name of [
    '',
    'ada',
    'ada@example.org',
    'Ada Lovelace',
    "o'x",
    '100 %',
    '%41',
    'a%2',
    'żółć',
    '名前',
    '🔑',
    'ada\r\nX-Auth-Super-Admin: true',
    ...everything(),
  ]) {
    const value = headerValue(name);
    assert.equal(decodeURIComponent(value), name, JSON.stringify(name.slice(0, 40)));
    assert.match(value, /^[\x20-\x7e]*$/);
    assert.doesNotMatch(value, /[",;:()<>[\]\\]/);
    assert.doesNotThrow(() => validateHeaderValue('X-Auth-Username', value));
  }
  assert.equal(
    headerValue('ada.b-c_d+e@example.org'),
    'ada.b-c_d+e@example.org',
    'a usual name is readable',
  );
  assert.equal(headerValue('Zoë, 50 %'), 'Zo%C3%AB%2C 50 %25');
});

test('a name has at most 30 combining marks in a row', () => {
  for (const check of [usernameError, personNameError]) {
    assert.equal(check(`x${'\u0323'.repeat(30)}`), null);
    assert.match(check(`x${'\u0323'.repeat(31)}`) ?? '', /30 combining marks/);
  }
  assert.match(emailError(`a@${'\u0323'.repeat(31)}.org`) ?? '', /30 combining marks/);
});

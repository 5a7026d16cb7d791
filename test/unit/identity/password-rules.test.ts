/** Which new passwords are rejected, and why. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commonPasswords, passwordError } from '../../../src/identity/rules.ts';
import { LONG_RUN, longestRunNormalized } from '../../support/normalized.ts';
import { wordsOf } from '../../support/words.ts';

const NAMES = {
  username: 'ada.lovelace',
  email: 'ada@example.org',
  first_name: 'Ada',
  last_name: 'King',
};
const RULES = { minLength: 8, words: ['Acme Rockets', 'αίνος'] };
const errorOf = (password: string, names: Parameters<typeof passwordError>[2] = NAMES) =>
  passwordError(password, RULES, names);

test('a password has a minimum and a maximum length, counted in code points', () => {
  const short = 'must have at least 8 characters';
  const long = 'must have at most 1024 characters';
  const table: ReadonlyArray<[string, string | null]> = [
    ['', short],
    ['1234567', short],
    ['83017462', null],
    ['🔑'.repeat(4), short],
    ['🔑'.repeat(7), short],
    ['🔑🗝'.repeat(4), null],
    ['e\u0301'.repeat(7), short],
    ['e\u0301x'.repeat(4), null],
    ['ﬃ'.repeat(3), null],
    ['xy'.repeat(512), null],
    ['x'.repeat(1_025), long],
    ['🔑🗝'.repeat(512), null],
    ['🔑'.repeat(1_025), long],
    ['e\u0301x'.repeat(512), null],
    ['ﬃ'.repeat(342), long],
  ];
  for (const [password, expected] of table)
    assert.equal(errorOf(password), expected, `${password.slice(0, 10)} (${password.length})`);
  const longer = { ...RULES, minLength: 12 };
  assert.equal(passwordError('83017462', longer, NAMES), 'must have at least 12 characters');
  assert.equal(passwordError('830174628301', longer, NAMES), null);
});

test('a new password has at most 30 combining marks in a row and 4,096 UTF-16 units', async () => {
  const marks = 'must have at most 30 combining marks in a row';
  assert.equal(errorOf(`passage ${'\u0323'.repeat(30)}y`), null);
  assert.equal(errorOf(`passage ${'\u0323'.repeat(31)}y`), marks);
  assert.equal(errorOf('\u1f82'.normalize('NFD').repeat(1_024)), null);
  assert.equal(
    errorOf('\u1f82'.normalize('NFD').repeat(1_025)),
    'must have at most 1024 characters',
  );
  const longest = await longestRunNormalized(() =>
    errorOf(LONG_RUN, { ...NAMES, first_name: 'x' }),
  );
  assert.ok(longest <= 30, `a run of ${longest}`);
});

test('a new password is folded once', async () => {
  let times = 0;
  const password = 'an unrelated passphrase 7';
  const { toUpperCase } = String.prototype;
  Object.defineProperty(String.prototype, 'toUpperCase', {
    configurable: true,
    writable: true,
    value(this: string) {
      if (String(this) === password) times += 1;
      return toUpperCase.call(this);
    },
  });
  assert.equal(errorOf(password), null);
  Object.defineProperty(String.prototype, 'toUpperCase', { value: toUpperCase });
  assert.equal(times, 1);
});

test('a password contains no U+0000 at any position', () => {
  for (const password of [
    'password\0 and more',
    '\0 before a password',
    'after a password\0',
    '\0'.repeat(8),
  ]) {
    assert.equal(
      errorOf(password),
      'must not contain the character U+0000',
      JSON.stringify(password),
    );
  }
});

test('there are no rules of composition', () => {
  for (const password of [
    'onlysmalllettershere',
    'ONLYCAPITALSHERE',
    '8301746529',
    '!!!!????....',
    'ein ganz normaler satz',
    'パスワードは長いです',
  ]) {
    assert.equal(errorOf(password), null, password);
  }
});

test('the 3,000 most common passwords are rejected, in any case and width', () => {
  const common = commonPasswords().trim().split('\n');
  assert.deepEqual([common.length, new Set(common).size], [3_000, 3_000]);
  const expected = 'is among the most common passwords; choose another';
  const fullWidth = (word: string) =>
    word.replace(/[!-~]/g, (character) => String.fromCharCode(character.charCodeAt(0) + 0xfee0));
  for (const word of common) {
    for (const typed of [word, word.toUpperCase(), fullWidth(word)])
      assert.equal(errorOf(typed), expected, typed);
  }
  for (const word of ['password', '12345678', 'qwertyuiop', 'iloveyou', 'password123'])
    assert.ok(common.includes(word), word);
  for (const word of ['password, but longer', 'assword123', 'wertyuiop'])
    assert.equal(errorOf(word), null, word);
});

test('single letters of a username are no words', () => {
  const names = { username: 'u3x0cd36242866b', email: 'u3x0cd36242866b@example.org' };
  assert.equal(passwordError('0b3cd7e1f2a94c5db8e60f17', { minLength: 8, words: [] }, names), null);
});

test("a password must not consist of the user's or the service's names, however they are varied", () => {
  const expected =
    'must not consist of names of the user or the service; choose several unrelated words';
  const names = [
    'ada.lovelace',
    'ADA_LOVELACE',
    'Lovelace-1815',
    'ada@example.org',
    'ada12345',
    'ada king 1815!',
    'adaadaada',
    'example99',
  ];
  const service = wordsOf(`
    gatehouse1 Gatehouse!! ＧＡＴＥＨＯＵＳＥ gate-house administrator1 admin@gatehouse 2024webhook
    identity.secrets
  `);
  const operator = ['acmerockets', 'Rockets99', 'ACME-2024', 'ΑΊΝΟΣ2024'];
  for (const password of [...names, ...service, ...operator])
    assert.equal(errorOf(password), expected, password);
  for (const password of [
    'lovelaces',
    'my gatehouse',
    'administrators',
    'ada and the king of example',
    'rocketship',
    '83017462',
    'gatehouse κήπος',
  ]) {
    assert.equal(errorOf(password), null, password);
  }
  const short = { ...NAMES, username: 'a', email: '1@x.yz' };
  for (const password of ['banana12', '11229384', 'a long passphrase', 'xyxyxyx8 b'])
    assert.equal(errorOf(password, short), null, password);
  const digits = { username: '+49 30 1234567', email: '7@example.org' };
  assert.equal(errorOf('+49 30 1234567', digits), expected);
  assert.equal(errorOf('+49 30 7654321', digits), null);
});

test('a password must not repeat one character', () => {
  for (const password of [
    'xxxxxxxx',
    'xXxXxXxX',
    'ｘxｘxｘxｘx',
    '🔑'.repeat(20),
    ' '.repeat(8),
    '........',
  ]) {
    assert.equal(
      errorOf(password),
      'must not repeat one character; choose several unrelated words',
      password,
    );
  }
});

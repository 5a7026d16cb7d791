/** Which names are one account, and how typed codes are read. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accountKey, typedCode } from '../../../src/identity/names.ts';

const SAME_ACCOUNT: ReadonlyArray<readonly [string, ...string[]]> = [
  ['admin', 'ADMIN', 'Admin', 'Ａｄｍｉｎ', 'ａｄｍｉｎ', '𝐚𝐝𝐦𝐢𝐧', 'ⓐⓓⓜⓘⓝ'],
  ['jürgen', 'JÜRGEN', 'ju\u0308rgen', 'JU\u0308RGEN'],
  ['file', 'ﬁle', 'FILE'],
  ['ångström', 'Ångström', '\u212bngström'],
  ['kelvin', '\u212aelvin'],
  ['ελένη', 'ΕΛΈΝΗ'],
  ['имя', 'ИМЯ'],
  ['strasse', 'straẞe', 'straße', 'STRASSE', 'STRAẞE'],
  ['σίσυφος', 'ΣΊΣΥΦΟΣ', 'σίσυφοσ', 'ςίςυφος'],
  ['istanbul', 'İstanbul', 'ıstanbul', 'ISTANBUL', 'i\u0307stanbul', 'I\u0307STANBUL'],
  ['ﬀ', 'FF', 'ff'],
  ['ꭰꭱ', 'ᎠᎡ'],
  ['ŉa', 'ʼna', 'ʼNA'],
  ['ᾳ', 'ΑΙ', 'αι', 'ᾼ'],
  ['ſam', 'SAM'],
  ['user①', 'USER1'],
  ['admin', ' admin\u00a0', '\u200badmin', 'ad\u00admin', '\ufeffADMIN\r\n', 'admin\u200e'],
  ['ann-marie 7', 'Ann\u2011Marie  7', 'ANN–MARIE\u3000٧', 'ann\u2212marie ７'],
  ["o'neill", 'O’Neill', 'o\u02bcneill', 'O＇NEILL'],
  ['a@münchen.example', 'A@MÜNCHEN.example', 'a@xn--mnchen-3ya.example', 'ａ＠münchen。example'],
  ['a@strasse.example', 'a@straße.example', 'a@xn--strae-oqa.example'],
];

for (const [name, ...others] of SAME_ACCOUNT) {
  test(`${name} is one account, however it is typed`, () => {
    for (const other of others) assert.equal(accountKey(other), accountKey(name), other);
  });
}

test('names that differ only in capital letters with combining marks are one account', () => {
  // No code point for the capital with its mark: it stays two, and its small form must become one.
  for (const [capital, small] of [
    ['Ϊ\u0301', '\u0390'],
    ['Ϋ\u0301', '\u03b0'],
    ['J\u030c', '\u01f0'],
    ['T\u0308', '\u1e97'],
    ['W\u030a', '\u1e98'],
  ] as const) {
    assert.equal(accountKey(`a${capital}b`), accountKey(`a${small}b`), small);
    assert.equal(accountKey(accountKey(capital)), accountKey(capital), `the key of ${capital}`);
  }
});

test('a key of a key is the key', () => {
  for (let code = 0; code <= 0x10ffff; code += 1) {
    if (code >= 0xd800 && code <= 0xdfff) continue;
    const character = String.fromCodePoint(code);
    const key = accountKey(character);
    if (key !== character) assert.equal(accountKey(key), key, code.toString(16));
  }
});

test('names that only look alike are different accounts', () => {
  const names = ['admin', 'аdmin', 'adrnin', 'admìn', 'admin\u0301', 'a dmin', 'admin1', ''];
  assert.equal(new Set(names.map(accountKey)).size, names.length);
});

test('the digits of every script are those of ASCII', () => {
  const systems = Intl.supportedValuesOf('numberingSystem');
  const written = systems.map((system) => {
    const numbers = new Intl.NumberFormat(`en-u-nu-${system}`, { useGrouping: false });
    return numbers.format(9_876_543_210);
  });
  const decimal = written.filter((text) => /^\p{Nd}{10}$/u.test(text));
  assert.ok(decimal.length > 60);
  for (const text of decimal) assert.equal(typedCode(text), '9876543210', text);
});

test('a text of more than 255 UTF-16 units or 30 marks in a row has the key of no name', () => {
  const isNoName = (text: string) => accountKey(text) === `\u0001${text}`;
  for (const [name, expected] of [
    ['n'.repeat(255), false],
    ['n'.repeat(256), true],
    [`${'𝐧'.repeat(127)}n`, false],
    ['𝐧'.repeat(128), true],
    [`x${'\u0323'.repeat(30)}`, false],
    [`x${'\u0323'.repeat(31)}`, true],
    [`${'x'.repeat(200)}${'\u0323'.repeat(31)}`, true],
    ['\uff76\uff9e'.repeat(127), false],
    [`\uff76${'\uff9e'.repeat(31)}`, true],
    [`${'\u0344'.repeat(128)}${'\u0323'.repeat(127)}`, true],
  ] as const)
    assert.equal(isNoName(name), expected, `${name.slice(0, 3)} (${name.length})`);
});

test('a dot above is removed from every i and j, through other marks', () => {
  for (const [name, key] of [
    ['i\u0323\u0307', '\u1ecb'],
    ['J\u0307\u0301\u0307x', 'j\u0301x'],
    ['a\u0307', '\u0227'],
    ['i\u0307a\u0307', 'i\u0227'],
  ] as const)
    assert.equal(accountKey(name), key, name);
});

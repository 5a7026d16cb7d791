import assert from 'node:assert/strict';
import { validateHeaderValue } from 'node:http';
import { test } from 'node:test';
import {
  type ApiKey,
  isActive,
  isUsable,
  mayLogIn,
  type Session,
  type User,
} from '../../../src/identity/model.ts';
import { accountKey, typedCode } from '../../../src/identity/names.ts';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { oneLine, type Schema, text, validate } from '../../../src/platform/http/route/schema.ts';
import { endedText } from '../../../src/identity/sessions.ts';
import {
  commonPasswords,
  nameSchemas,
  passwordError,
  usernameError,
  withoutControls,
} from '../../../src/identity/rules.ts';
import { LONG_RUN, longestRunNormalized } from '../../support/normalized.ts';
import { headerValue } from '../../../src/identity/verify.ts';

/** @returns a function that says why a text is rejected, or null */
const errorIn = (schema: Schema<string>) => (value: string) => {
  const read = validate(schema, value, 'invalid_body');
  return read instanceof Failure ? read.details.fields?.[0]?.message : null;
};
const controlCharError = errorIn(text({ pattern: withoutControls }));
const emailError = errorIn(nameSchemas.email);
const personNameError = errorIn(nameSchemas.first_name);

const THEN = new Date('2030-01-01T00:00:00Z');

const USER: User = {
  id: '0190c0de-0000-4000-8000-000000000001',
  first_name: '',
  last_name: '',
  username: 'somebody',
  email: 'somebody@localhost',
  enabled: true,
  verified: false,
  super_admin: false,
  groups: [],
  created_at: THEN,
  updated_at: THEN,
  deleted_at: null,
};

const SESSION: Session = {
  id: '0190c0de-0000-4000-8000-000000000002',
  user_id: USER.id,
  revoked: false,
  logged_out: false,
  expires_at: THEN,
  expired: false,
  ip: '192.0.2.1',
  user_agent: null,
  last_seen_at: THEN,
  last_seen_is_old: false,
  created_at: THEN,
  updated_at: THEN,
  deleted_at: null,
  user: USER,
};

const KEY: ApiKey = {
  created_by: USER.id,
  created_by_username: USER.username,
  suspended: false,
  id: '0190c0de-0000-4000-8000-000000000003',
  key_prefix: 'key:AAAAAAAA',
  name: '',
  groups: [],
  user_id: USER.id,
  revoked: false,
  expires_at: null,
  expired: false,
  last_used_at: null,
  last_seen_is_old: true,
  created_at: THEN,
  updated_at: THEN,
  deleted_at: null,
  user: USER,
};

/** Everything that ends a session, each by itself enough. */
const ENDS: Readonly<Record<string, (session: Session) => Session>> = {
  'is revoked': (session) => ({ ...session, revoked: true }),
  'is logged out': (session) => ({ ...session, logged_out: true }),
  'has expired': (session) => ({ ...session, expired: true }),
  'has a disabled user': (session) => ({ ...session, user: { ...session.user, enabled: false } }),
  'has a deleted user': (session) => ({ ...session, user: { ...session.user, deleted_at: THEN } }),
};

test('a session that has not ended is active for every kind of user', () => {
  assert.equal(isActive(SESSION), true);
  for (const verified of [true, false]) {
    for (const super_admin of [true, false])
      assert.equal(isActive({ ...SESSION, user: { ...USER, verified, super_admin } }), true);
  }
});

for (const [name, end] of Object.entries(ENDS)) {
  test(`a session that ${name} is not active`, () => {
    assert.equal(isActive(end(SESSION)), false);
    const privileged = { ...SESSION, user: { ...USER, verified: true, super_admin: true } };
    assert.equal(isActive(end(privileged)), false);
  });
}

test('a second end does not reactivate a session', () => {
  const ends = Object.values(ENDS);
  for (let chosen = 0; chosen < 2 ** ends.length; chosen += 1) {
    const session = ends.reduce(
      (so_far, end, index) => (chosen & (1 << index) ? end(so_far) : so_far),
      SESSION,
    );
    assert.equal(isActive(session), chosen === 0, `combination ${chosen}`);
  }
});

test('a key is usable until it is revoked, expired, deleted or suspended', () => {
  const nobodys: ApiKey = { ...KEY, user_id: null, user: null };
  for (const key of [
    KEY,
    nobodys,
    { ...KEY, expires_at: new Date(0) },
    { ...KEY, user: { ...USER, super_admin: true } },
  ])
    assert.equal(isUsable(key), true);
  for (const end of [
    { revoked: true },
    { expired: true },
    { deleted_at: THEN },
    { suspended: true },
  ]) {
    for (const key of [KEY, nobodys])
      assert.equal(isUsable({ ...key, ...end }), false, JSON.stringify(end));
  }
});

test('a user logs in while enabled and not deleted', () => {
  assert.equal(mayLogIn({ enabled: true, deleted_at: null }), true);
  assert.equal(mayLogIn({ enabled: false, deleted_at: null }), false);
  assert.equal(mayLogIn({ enabled: true, deleted_at: THEN }), false);
  assert.equal(mayLogIn({ enabled: false, deleted_at: THEN }), false);
});

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
    const key = accountKey(String.fromCodePoint(code));
    assert.equal(accountKey(key), key, code.toString(16));
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
  for (const check of [usernameError, personNameError]) {
    assert.equal(check(`x${'\u0323'.repeat(30)}`), null);
    assert.match(check(`x${'\u0323'.repeat(31)}`) ?? '', /30 combining marks/);
  }
  assert.match(emailError(`a@${'\u0323'.repeat(31)}.org`) ?? '', /30 combining marks/);
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
  const service = [
    'gatehouse1',
    'Gatehouse!!',
    'ＧＡＴＥＨＯＵＳＥ',
    'gate-house',
    'administrator1',
    'admin@gatehouse',
    '2024webhook',
    'identity.secrets',
  ];
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

const CONTROLS = [
  '\0',
  '\t',
  '\n',
  '\r',
  '\x1b',
  '\x7f',
  '\u0085',
  '\u009b',
  '\u061c',
  '\u200e',
  '\u200f',
  '\u202e',
  '\u2066',
];
const UNSEEN = [
  '\u200e',
  '\u202e',
  '\u200b',
  '\u200d',
  '\u00ad',
  '\u2060',
  '\ufeff',
  '\u{e0041}',
  '\u2800',
  '\u115f',
  '\u1160',
  '\u3164',
  '\uffa0',
  '\u034f',
  '\u17b4',
  '\u{1d159}',
  '\u{13441}',
];
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
  const blank = [
    ' ',
    '\u00a0',
    '\u3000',
    '\u2800',
    '\u115f',
    '\u3164',
    '\uffa0',
    '\u200b',
    '\u00ad',
    '\ufeff',
    '\u{e0041}',
    '\u{1d159}',
    ' \u200d\u2800 ',
  ];
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
  for (const space of [' ', '\u00a0', '\u3000', '\t', '\n', '\u2028']) {
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

test('a message counts ended sessions exactly up to 10,000', () => {
  assert.deepEqual([0, 1, 2, 10_000, 10_001, null].map(endedText), [
    '0 sessions',
    '1 session',
    '2 sessions',
    '10000 sessions',
    'More than 10,000 sessions',
    'All open sessions',
  ]);
});

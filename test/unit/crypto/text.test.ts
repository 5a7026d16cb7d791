import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { fromAnyBase64, fromBase64url, uuidToBytes } from '../../../src/platform/crypto/text.ts';
import { isUuid } from '../../../src/platform/runtime/text.ts';

const SIX_BITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const hex = (bytes: Buffer | null) => bytes?.toString('hex') ?? null;

test('Base64url gives the published bytes', () => {
  // RFC 4648, section 10, without the padding; the last two hold the characters in which the
  // alphabets differ.
  const cases = {
    '': '',
    Zg: '66',
    Zm8: '666f',
    Zm9v: '666f6f',
    Zm9vYg: '666f6f62',
    Zm9vYmE: '666f6f6261',
    '-_-_': 'fbffbf',
    _w: 'ff',
  };
  for (const [text, bytes] of Object.entries(cases))
    assert.equal(hex(fromBase64url(text)), bytes, text);
});

/** `Buffer.from` decodes each of these, most of them to `abc`. */
const GARBAGE = [
  'YWJj=garbage',
  'YW\nJj',
  'YWJj\n',
  'YWJj\r\n',
  ' YWJj',
  'YWJj ',
  'YW Jj',
  'YWJj\0',
  'YW-Jj!',
  'YW.Jj',
  'YWJj%3D',
  'YWJjé',
  'YWJj\u{1f511}',
  'ＹＷＪｊ',
  'YWJjA',
  'A',
  '=',
  '==',
  '===',
  '====',
  'Y=WJj',
  '=YWJj',
  'YWJj===',
  'YWJj====',
  'YWJj=',
  'YWJj==',
  '\u0159WJj',
  '\ud800',
];

for (const text of GARBAGE) {
  test(`neither decoder takes ${JSON.stringify(text)}`, () => {
    assert.equal(fromBase64url(text), null);
    assert.equal(fromAnyBase64(text), null);
  });
}

test('Base64url takes no padding and no character of the other alphabet', () => {
  for (const text of ['Zg==', 'Zm8=', 'Zm8%3D', '+_-_', '-/-_', '+/+/', '/w'])
    assert.equal(fromBase64url(text), null, text);
});

test('bits that no byte uses must be zero', () => {
  const accepted = (beginning: string) =>
    [...SIX_BITS].filter((last) => fromBase64url(beginning + last)).join('');
  assert.equal(accepted('A'), 'AQgw');
  assert.equal(accepted('AA'), 'AEIMQUYcgkosw048');
  assert.equal(accepted('AAA'), SIX_BITS);
  assert.deepEqual(['Zh', 'Zh==', 'Zm9', 'Zm9='].map(fromAnyBase64), [null, null, null, null]);
});

test('no two texts of Base64url give the same bytes', () => {
  const alphabet = [...'AQgwxk-_=+/ \n.'];
  const texts = ['', 'A', 'AQ'].flatMap((start) =>
    alphabet.flatMap((a) =>
      alphabet.flatMap((b) => ['', ...alphabet].map((c) => start + a + b + c)),
    ),
  );
  const decoded = [...new Set(texts)].flatMap((text) => hex(fromBase64url(text)) ?? []);
  assert.ok(decoded.length > 500);
  assert.equal(new Set(decoded).size, decoded.length);
});

test('what parses prints back the same, and every value has its spellings', () => {
  for (let round = 0; round < 2_000; round += 1) {
    const bytes = randomBytes(round % 67);
    const base64 = bytes.toString('base64');
    const base64url = bytes.toString('base64url');
    assert.deepEqual(fromBase64url(base64url), bytes);
    const padding = base64.slice(base64.replaceAll('=', '').length);
    for (const text of [base64, base64url, base64.replaceAll('=', ''), base64url + padding])
      assert.deepEqual(fromAnyBase64(text), bytes, text);
  }
});

test('random texts parse only if they are one of the spellings of their bytes', () => {
  const alphabet = 'AQgwxkZ059=';
  let parsed = 0;
  for (let round = 0; round < 20_000; round += 1) {
    const text = Array.from(
      randomBytes(round % 9),
      (byte) => alphabet[byte % alphabet.length],
    ).join('');
    const url = fromBase64url(text);
    if (url) assert.equal(url.toString('base64url'), text);
    const any = fromAnyBase64(text);
    if (!any) continue;
    parsed += 1;
    const base64 = any.toString('base64');
    const base64url = any.toString('base64url');
    assert.ok([base64, base64url].includes(text), text);
  }
  assert.ok(parsed > 1_000, `${parsed} is too few for the test to mean something`);
});

test('padding is all there or not there at all', () => {
  const table: ReadonlyArray<[string, string | null]> = [
    ['Zg', '66'],
    ['Zg=', null],
    ['Zg==', '66'],
    ['Zg===', null],
    ['Zm8', '666f'],
    ['Zm8=', '666f'],
    ['Zm8==', null],
    ['Zm9v', '666f6f'],
    ['Zm9v=', null],
    ['Zm9v==', null],
    ['Zm9v====', null],
    ['_w==', 'ff'],
    ['/w==', 'ff'],
    ['/w', 'ff'],
    ['_w', 'ff'],
    ['', ''],
  ];
  for (const [text, bytes] of table) assert.equal(hex(fromAnyBase64(text)), bytes, text);
});

test('a text that mixes the two alphabets is in neither', () => {
  for (const text of ['+_+_', '-/-/', '+-+-', '/_/_', 'AA-+'])
    assert.equal(fromAnyBase64(text), null, text);
});

test('a UUID has one spelling', () => {
  for (const uuid of [
    randomUUID(),
    '00000000-0000-0000-0000-000000000000',
    'ffffffff-ffff-ffff-ffff-ffffffffffff',
  ])
    assert.ok(isUuid(uuid), uuid);
  const uuid = '0190c0de-1234-4abc-8def-0123456789ab';
  const others = [
    '',
    uuid.toUpperCase(),
    uuid.replaceAll('-', ''),
    `{${uuid}}`,
    `urn:uuid:${uuid}`,
    `${uuid}\n`,
    ` ${uuid}`,
    `${uuid} `,
    `${uuid}0`,
    uuid.slice(1),
    uuid.slice(0, -1),
    uuid.replace('0', 'g'),
    uuid.replace('-', '_'),
    uuid.replace('-', '–'),
    uuid.replace('0', '０'),
    `${uuid}${uuid}`,
    '0190c0de12-34-4abc-8def-0123456789ab',
  ];
  for (const other of others) assert.equal(isUuid(other), false, other);
});

test('a UUID is sixteen bytes, in the order in which it is written', () => {
  assert.equal(
    hex(uuidToBytes('0190c0de-1234-4abc-8def-0123456789ab')),
    '0190c0de12344abc8def0123456789ab',
  );
});

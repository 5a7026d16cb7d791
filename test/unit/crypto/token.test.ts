/** Tokens, digests, and the one text that stands for bytes or an id. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { fromAnyBase64, fromBase64url, uuidToBytes } from '../../../src/platform/crypto/text.ts';
import { sha256, randomToken, equalDigests } from '../../../src/platform/crypto/token.ts';
import { isUuid } from '../../../src/platform/runtime/text.ts';
import { everyBitFlipped } from '../../support/bits.ts';
import { wordsOf } from '../../support/words.ts';

test('a token is 256 random bits in Base64url', () => {
  const tokens = Array.from({ length: 1_000 }, randomToken);
  for (const token of tokens) assert.match(token, /^[A-Za-z0-9_-]{43}$/);
  assert.equal(new Set(tokens).size, tokens.length);
});

test('a digest is SHA-256 of the UTF-8 text', () => {
  // FIPS 180-2, appendix B.1.
  const expected = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad';
  assert.equal(sha256('abc').toString('hex'), expected);
  assert.deepEqual(sha256('\u00fc'), sha256(Buffer.from('c3bc', 'hex').toString('utf8')));
  assert.notDeepEqual(sha256('\u00fc'), sha256('u\u0308'));
});

test('digests are the same only bit for bit, and of the same length', () => {
  const right = sha256('a token');
  assert.equal(equalDigests(right, sha256('a token')), true);
  for (const [, wrong] of everyBitFlipped(right)) assert.equal(equalDigests(right, wrong), false);
  for (const other of [Buffer.of(), right.subarray(0, 31), Buffer.concat([right, Buffer.of(0)])]) {
    assert.equal(equalDigests(right, other), false);
    assert.equal(equalDigests(other, right), false);
  }
});

const hex = (bytes: Buffer | null) => bytes?.toString('hex') ?? null;

/** RFC 4648, section 10, and characters in which the alphabets differ. Null is refused. */
const ENCODED: ReadonlyArray<readonly [text: string, asUrl: string | null, asAny: string | null]> =
  [
    ['', '', ''],
    ['Zg', '66', '66'],
    ['Zg==', null, '66'],
    ['Zg=', null, null],
    ['Zg===', null, null],
    ['Zm8', '666f', '666f'],
    ['Zm8=', null, '666f'],
    ['Zm8==', null, null],
    ['Zm9v', '666f6f', '666f6f'],
    ['Zm9v=', null, null],
    ['Zm9v====', null, null],
    ['Zm9vYg', '666f6f62', '666f6f62'],
    ['_w', 'ff', 'ff'],
    ['/w', null, 'ff'],
    ['/w==', null, 'ff'],
    ['-_-_', 'fbffbf', 'fbffbf'],
    ['+/+/', null, 'fbffbf'],
    ['+_+_', null, null],
    ['AA-+', null, null],
    ['Zh', null, null],
    ['Zm9', null, null],
  ];
/** `Buffer.from` decodes each of these, most of them to `abc`. */
const GARBAGE = [
  ...wordsOf('YWJj=garbage YW-Jj! YW.Jj YWJj%3D YWJjé YWJj🔑 ＹＷＪｊ YWJjA A = ==== Y=WJj =YWJj'),
  ...['YW\nJj', 'YWJj\n', ' YWJj', 'YWJj ', 'YW Jj', 'YWJj\0', '\u0159WJj', '\ud800'],
];

test('a text of Base64 has one reading, or none', () => {
  for (const [text, asUrl, asAny] of ENCODED)
    assert.deepEqual([hex(fromBase64url(text)), hex(fromAnyBase64(text))], [asUrl, asAny], text);
  for (const text of GARBAGE)
    assert.deepEqual([fromBase64url(text), fromAnyBase64(text)], [null, null], text);
});

test('bits that no byte uses must be zero', () => {
  const last = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  const accepted = (beginning: string) =>
    [...last].filter((one) => fromBase64url(beginning + one)).join('');
  assert.deepEqual(['A', 'AA', 'AAA'].map(accepted), ['AQgw', 'AEIMQUYcgkosw048', last]);
});

test('a UUID has one spelling, of sixteen bytes', () => {
  const uuid = '0190c0de-1234-4abc-8def-0123456789ab';
  const ends = ['00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff'];
  for (const one of [uuid, randomUUID(), ...ends]) assert.ok(isUuid(one), one);
  for (const other of [
    ...['', uuid.toUpperCase(), uuid.replaceAll('-', ''), `{${uuid}}`, `urn:uuid:${uuid}`],
    ...[`${uuid}\n`, ` ${uuid}`, `${uuid} `, `${uuid}0`, uuid.slice(1), `${uuid}${uuid}`],
    ...[uuid.replace('0', 'g'), uuid.replace('-', '_'), uuid.replace('0', '０')],
    '0190c0de12-34-4abc-8def-0123456789ab',
  ])
    assert.equal(isUuid(other), false, other);
  assert.equal(hex(uuidToBytes(uuid)), uuid.replaceAll('-', ''));
});

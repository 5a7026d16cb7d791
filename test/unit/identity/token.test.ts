import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import {
  createApiKey,
  createSessionToken,
  maskedKey,
  parseApiKey,
  parseSessionToken,
} from '../../../src/identity/token.ts';

const UUID = '0190c0de-1234-4abc-8def-0123456789ab';
const TOKEN = `session:${UUID}`;
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const base64 = (text: string) => Buffer.from(text, 'utf8').toString('base64');
const ENCODED = base64(TOKEN);
const BARE = ENCODED.replaceAll('=', '');

/** In Base64 and Base64url, unpadded and padded. */
const encodings = (text: string): string[] =>
  (['base64', 'base64url'] as const).flatMap((encoding) => {
    const encoded = Buffer.from(text, 'latin1').toString(encoding).replace(/=+$/, '');
    return [encoded, encoded + '='.repeat(-encoded.length & 3)];
  });

/** A token, its Base64 and its Base64url, which may follow the prefix. */
function formsOf(token: string): string[] {
  const encoded = encodings(token);
  return [token, ...encoded, ...encoded.map((one) => `session:${one}`)];
}

test('every form of a session token has the digest of the token', () => {
  assert.equal(ENCODED, 'c2Vzc2lvbjowMTkwYzBkZS0xMjM0LTRhYmMtOGRlZi0wMTIzNDU2Nzg5YWI=');
  assert.equal(new Set(formsOf(TOKEN)).size, 5);
  for (const form of formsOf(TOKEN)) assert.equal(parseSessionToken(form), sha256(TOKEN), form);
});

const NO_TOKENS = [
  ...['', 'session:', UUID, base64(UUID), `session:${base64(UUID)}`, `session${UUID}`],
  // Another prefix, or the prefix twice.
  ...[`apikey:${UUID}`, base64(`apikey:${UUID}`), `apikey:${ENCODED}`, `account:${ENCODED}`],
  ...[
    `Session:${UUID}`,
    base64(`SESSION:${UUID}`),
    `session:${TOKEN}`,
    `session:session:${ENCODED}`,
  ],
  base64(`session:${TOKEN}`),
  // Another spelling of the UUID.
  ...[`session:${UUID.toUpperCase()}`, base64(`session:${UUID.toUpperCase()}`), TOKEN.slice(0, -1)],
  ...[`session:${UUID.replaceAll('-', '')}`, `session:{${UUID}}`, `${TOKEN}0`, `${TOKEN} ${TOKEN}`],
  ...[`ｓｅｓｓｉｏｎ:${UUID}`, TOKEN.replace('0', '０'), base64(TOKEN.replace('0', '０'))],
  // Another encoding, or one more.
  ...[base64(ENCODED), `session:${base64(ENCODED)}`, base64(`session:${ENCODED}`)],
  ...[Buffer.from(TOKEN).toString('hex'), encodeURIComponent(TOKEN), `${BARE}%3D`],
  // Something around it or inside.
  ...[` ${TOKEN}`, `${TOKEN} `, `${TOKEN}\n`, `${TOKEN}\0`, `session: ${UUID}`, `${ENCODED}\n`],
  ...[`${ENCODED.slice(0, 20)}\n${ENCODED.slice(20)}`, base64(`${TOKEN}\n`), base64(`${TOKEN}\0`)],
  base64(`\ufeff${TOKEN}`),
  // Padding, and bits that no byte uses.
  ...[`${ENCODED}=`, `${ENCODED}=garbage`, `${BARE.slice(0, -1)}J=`],
  // The high bit of a letter is set.
  Buffer.from(TOKEN.replace('0', '\u00b0'), 'latin1').toString('base64'),
  ...['A'.repeat(1_000_000), base64(TOKEN.repeat(10_000))],
];

test('nothing else is a session token', () => {
  for (const other of [...NO_TOKENS, createApiKey()])
    assert.equal(parseSessionToken(other), null, other.slice(0, 60));
});

test('a new token is session: and a random UUID of version 4', () => {
  const tokens = Array.from({ length: 1_000 }, createSessionToken);
  for (const token of tokens)
    assert.match(
      token,
      /^session:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    );
  assert.equal(new Set(tokens).size, tokens.length);
});

test('a new key has 256 random bits and a checksum and is stored as its SHA-256', () => {
  const keys = Array.from({ length: 1_000 }, createApiKey);
  for (const key of keys) {
    assert.match(key, /^key:[A-Za-z0-9_-]{49}$/);
    // 256 bits, and none that no byte uses.
    const bytes = Buffer.from(key.slice(4, 47), 'base64url');
    assert.deepEqual([bytes.length, bytes.toString('base64url')], [32, key.slice(4, 47)]);
    assert.equal(parseApiKey(key), sha256(key));
  }
  assert.equal(new Set(keys.map((key) => key.slice(4, 47))).size, keys.length);
});

test('the checksum notices every character that is mistyped, missing, doubled or swapped', () => {
  const key = createApiKey();
  const characters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_: =.+/';
  for (let at = 0; at < key.length; at += 1) {
    const before = key.slice(0, at);
    const here = key.charAt(at);
    const after = key.slice(at + 1);
    for (const changed of [
      ...[...characters].map((character) => before + character + after),
      ...[before + after, before + here + here + after],
      before + after.slice(0, 1) + here + after.slice(1),
    ])
      if (changed !== key) assert.equal(parseApiKey(changed), null, changed);
  }
});

test('nothing around a key, and no encoding of it, is taken for the key', () => {
  const key = createApiKey();
  const random = key.slice(4);
  const fullWidth = key.replace(/[A-Za-z0-9]/g, (character) =>
    String.fromCharCode(character.charCodeAt(0) + 0xfee0),
  );
  for (const other of [
    ...['', 'key:', random, `KEY:${random}`, `session:${random}`, `key:${'A'.repeat(49)}`],
    ...[` ${key}`, `${key} `, `${key}\n`, `${key}\0`, `Bearer ${key}`, `${key}${key}`],
    ...[base64(key), `key:${base64(key)}`, encodeURIComponent(key), fullWidth],
    ...['k'.repeat(1_000_000), createSessionToken()],
  ])
    assert.equal(parseApiKey(other), null, other.slice(0, 60));
});

test('a masked key tells keys apart, and keeps all but 48 bits to itself', () => {
  const key = createApiKey();
  assert.equal(maskedKey(key), key.slice(0, 12));
  assert.equal(maskedKey(maskedKey(key)), maskedKey(key));
});

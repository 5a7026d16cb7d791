import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import {
  createApiKey,
  createSessionToken,
  KEY_PREFIX,
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

const ACCEPTED: Readonly<Record<string, string>> = {
  'the plain token': TOKEN,
  'Base64 of the token': ENCODED,
  'Base64 of the token without padding': BARE,
  'Base64url of the token': Buffer.from(TOKEN).toString('base64url'),
  'session: and Base64 of the token': `session:${ENCODED}`,
  'session: and Base64url of the token': `session:${BARE}`,
};

for (const [name, credential] of Object.entries(ACCEPTED)) {
  test(`${name} has the digest of the token`, () =>
    assert.equal(parseSessionToken(credential), sha256(TOKEN)));
}

test('the encodings above are what they are called', () => {
  assert.equal(ENCODED, 'c2Vzc2lvbjowMTkwYzBkZS0xMjM0LTRhYmMtOGRlZi0wMTIzNDU2Nzg5YWI=');
});

const REFUSED: Readonly<Record<string, string>> = {
  nothing: '',
  'the prefix alone': 'session:',
  'a UUID alone': UUID,
  'Base64 of a UUID alone': base64(UUID),
  'session: and Base64 of a UUID alone': `session:${base64(UUID)}`,
  'the token without its colon': `session${UUID}`,
  'another prefix': `apikey:${UUID}`,
  'Base64 of another prefix': base64(`apikey:${UUID}`),
  'another prefix and Base64 of the token': `apikey:${ENCODED}`,
  'another prefix of the same length and Base64 of the token': `account:${ENCODED}`,
  'a prefix in capitals': `Session:${UUID}`,
  'Base64 of a prefix in capitals': base64(`SESSION:${UUID}`),
  'a UUID in capitals': `session:${UUID.toUpperCase()}`,
  'Base64 of a UUID in capitals': base64(`session:${UUID.toUpperCase()}`),
  'a UUID without hyphens': `session:${UUID.replaceAll('-', '')}`,
  'a UUID in braces': `session:{${UUID}}`,
  'a UUID cut short': TOKEN.slice(0, -1),
  'a UUID and more': `${TOKEN}0`,
  'two prefixes': `session:${TOKEN}`,
  'two prefixes and Base64': `session:session:${ENCODED}`,
  'Base64 of two prefixes': base64(`session:${TOKEN}`),
  'Base64 twice': base64(ENCODED),
  'session: and Base64 twice': `session:${base64(ENCODED)}`,
  'Base64 of session: and Base64': base64(`session:${ENCODED}`),
  hexadecimal: Buffer.from(TOKEN).toString('hex'),
  'percent-encoding': encodeURIComponent(TOKEN),
  'Base64 with percent-encoded padding': `${BARE}%3D`,
  'a space before': ` ${TOKEN}`,
  'a space after': `${TOKEN} `,
  'a newline after': `${TOKEN}\n`,
  'a NUL after': `${TOKEN}\0`,
  'a space after the prefix': `session: ${UUID}`,
  'a newline inside Base64': `${ENCODED.slice(0, 20)}\n${ENCODED.slice(20)}`,
  'a newline after Base64': `${ENCODED}\n`,
  'Base64 of a newline after the token': base64(`${TOKEN}\n`),
  'Base64 of a NUL after the token': base64(`${TOKEN}\0`),
  'Base64 of a byte order mark before the token': base64(`\ufeff${TOKEN}`),
  'too much padding': `${ENCODED}=`,
  'padding and more': `${ENCODED}=garbage`,
  'bits of Base64 that no byte uses': `${BARE.slice(0, -1)}J=`,
  'full-width letters': `ｓｅｓｓｉｏｎ:${UUID}`,
  'full-width digits': TOKEN.replace('0', '０'),
  'Base64 of full-width digits': base64(TOKEN.replace('0', '０')),
  'the high bit of a letter set': Buffer.concat([
    Buffer.from('session:'),
    Buffer.of(0xb0),
    Buffer.from(UUID.slice(1)),
  ]).toString('base64'),
  'two tokens': `${TOKEN} ${TOKEN}`,
  'a very long text': 'A'.repeat(1_000_000),
  'Base64 of a very long text': base64(TOKEN.repeat(10_000)),
};

for (const [name, credential] of Object.entries(REFUSED)) {
  test(`${name} is no token`, () => assert.equal(parseSessionToken(credential), null));
}

test('a new token is session: and a random UUID of version 4, and parses as itself', () => {
  const tokens = Array.from({ length: 1_000 }, createSessionToken);
  for (const token of tokens) {
    assert.match(
      token,
      /^session:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    );
    for (const form of [token, base64(token), `session:${base64(token)}`])
      assert.equal(parseSessionToken(form), sha256(token));
  }
  assert.equal(new Set(tokens).size, tokens.length);
});

const BASE64URL = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

test('a new key has 256 random bits and a checksum and is stored as its SHA-256', () => {
  const keys = Array.from({ length: 1_000 }, createApiKey);
  for (const key of keys) {
    assert.match(key, /^key:[A-Za-z0-9_-]{49}$/);
    // 256 bits, and none that no byte uses.
    const random = key.slice(4, 47);
    assert.equal(Buffer.from(random, 'base64url').length, 32);
    assert.equal(Buffer.from(random, 'base64url').toString('base64url'), random);
    assert.equal(parseApiKey(key), sha256(key));
  }
  assert.equal(new Set(keys.map((key) => key.slice(4, 47))).size, keys.length);
});

test('the checksum notices every character that is mistyped', () => {
  const key = createApiKey();
  for (let at = 0; at < key.length; at += 1) {
    for (const character of `${BASE64URL}: =.+/`) {
      const changed = `${key.slice(0, at)}${character}${key.slice(at + 1)}`;
      if (changed !== key) assert.equal(parseApiKey(changed), null, `"${character}" at ${at}`);
    }
  }
});

test('the checksum detects a missing, doubled or swapped character', () => {
  const key = createApiKey();
  for (let at = 0; at < key.length; at += 1) {
    const before = key.slice(0, at);
    const here = key.charAt(at);
    const next = key.charAt(at + 1);
    const rest = key.slice(at + 2);
    for (const changed of [
      before + next + rest,
      before + here + here + next + rest,
      before + next + here + rest,
    ]) {
      if (changed !== key) assert.equal(parseApiKey(changed), null, changed);
    }
  }
});

test('nothing around a key, and no encoding of it, is taken for the key', () => {
  const key = createApiKey();
  const others = [
    '',
    'key:',
    key.slice(4),
    ` ${key}`,
    `${key} `,
    `${key}\n`,
    `${key}\0`,
    `Bearer ${key}`,
    `KEY:${key.slice(4)}`,
    `session:${key.slice(4)}`,
    `${key}${key}`,
    base64(key),
    `key:${base64(key)}`,
    encodeURIComponent(key),
    key.replace(/[A-Za-z0-9]/g, (character) =>
      String.fromCharCode(character.charCodeAt(0) + 0xfee0),
    ),
    `key:${'A'.repeat(49)}`,
    'k'.repeat(1_000_000),
  ];
  for (const other of others) assert.equal(parseApiKey(other), null, other.slice(0, 60));
});

test('a key is no session token and a session token no key', () => {
  assert.equal(parseApiKey(createSessionToken()), null);
  assert.equal(parseSessionToken(createApiKey()), null);
});

test('a masked key tells keys apart, and keeps all but 48 bits to itself', () => {
  const key = createApiKey();
  assert.equal(KEY_PREFIX, 'key:');
  assert.equal(maskedKey(key), key.slice(0, 12));
  assert.equal(maskedKey(maskedKey(key)), maskedKey(key));
});

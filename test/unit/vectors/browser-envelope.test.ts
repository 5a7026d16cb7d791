/**
 * The end-to-end format: frozen vectors, and the pages' own code against a second implementation on
 * node:crypto.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import * as pages from '../../../src/secrets/pages/envelope.js';
import { plainKey, plainKeys, plainOpen, plainSeal } from './plain-browser-envelope.ts';

interface Vector {
  readonly secret: string;
  readonly key: string;
  readonly passphrase: string;
  readonly content_key: string;
  readonly proof: string | null;
  readonly nonce: string;
  readonly about: pages.About;
  readonly content: string;
  readonly envelope: string;
}
const vectors: Vector[] = JSON.parse(
  readFileSync(new URL('envelope-v1.json', import.meta.url), 'utf8'),
);
const hex = (text: string) => Buffer.from(text, 'hex');
const TEXT = { kind: 'text' } as const;

for (const { passphrase, about, ...vector } of vectors) {
  test(`frozen envelope: ${JSON.stringify(about)}, passphrase "${passphrase}"`, async () => {
    assert.equal(plainKey(hex(vector.secret)), vector.key);
    for (const keys of [
      plainKeys(vector.key, passphrase),
      await pages.deriveKeys(vector.key, passphrase),
    ]) {
      assert.ok(keys);
      assert.equal(Buffer.from(keys.content).toString('hex'), vector.content_key);
      assert.equal(keys.proof ?? null, vector.proof);
    }
    const key = hex(vector.content_key);
    assert.equal(plainSeal(key, hex(vector.nonce), about, hex(vector.content)), vector.envelope);
    for (const opened of [
      plainOpen(key, vector.envelope),
      await pages.open(vector.envelope, key),
    ]) {
      assert.deepEqual(opened?.about, about);
      assert.equal(Buffer.from(opened?.bytes ?? []).toString('hex'), vector.content);
    }
  });
}

test('node:crypto opens what the pages seal, of every length around the padding', async () => {
  for (const length of [0, 1, 228, 229, 230, 500, 5_000, 70_000]) {
    const bytes = randomBytes(length);
    for (const about of [TEXT, { kind: 'file', name: 'ä b.txt', type: 'text/plain' }] as const) {
      const { key, envelope, proof } = await pages.seal({ about, bytes }, '');
      assert.equal(proof, undefined);
      assert.match(key, /^[A-Za-z0-9_-]{48}$/);
      assert.equal(envelope.length, pages.envelopeLength(about, length));
      const opened = plainOpen(plainKeys(key, '').content, envelope);
      assert.deepEqual(opened.about, about);
      assert.ok(opened.bytes.equals(bytes));
      assert.equal(
        plainSeal(randomBytes(32), randomBytes(12), about, bytes).length,
        envelope.length,
        'the same padding',
      );
    }
  }
});

test('an envelope says nothing about a short text, not even its length', async () => {
  const lengths = await Promise.all(
    [1, 10, 100, 200].map(
      async (length) =>
        (await pages.seal({ about: TEXT, bytes: Buffer.alloc(length, 'x') }, '')).envelope.length,
    ),
  );
  assert.equal(new Set(lengths).size, 1);
});

test('a key with any character changed, missing or added is recognized before it is used', async () => {
  const { key } = await pages.seal({ about: TEXT, bytes: Buffer.from('x') }, '');
  assert.ok(await pages.deriveKeys(key, ''));
  for (let at = 0; at < key.length; at += 1) {
    const changed = key.slice(0, at) + (key[at] === 'A' ? 'B' : 'A') + key.slice(at + 1);
    assert.equal(await pages.deriveKeys(changed, ''), null, `character ${at}`);
  }
  for (const wrong of [
    '',
    key.slice(1),
    key.slice(0, -1),
    `${key}A`,
    `${key.slice(0, -1)}+`,
    ' '.repeat(48),
  ]) {
    assert.equal(await pages.deriveKeys(wrong, ''), null, wrong);
  }
});

test('an altered envelope, another version and another key do not open', async () => {
  const { key, envelope } = await pages.seal({ about: TEXT, bytes: Buffer.from('x') }, '');
  const { content } = (await pages.deriveKeys(key, '')) ?? assert.fail();
  const bytes = Buffer.from(envelope, 'base64url');
  assert.ok(await pages.open(envelope, content));
  for (const at of [0, 1, 12, 13, bytes.length - 17, bytes.length - 1]) {
    const altered = Buffer.from(bytes);
    altered.writeUInt8(altered.readUInt8(at) ^ 1, at);
    assert.equal(await pages.open(altered.toString('base64url'), content), null, `byte ${at}`);
  }
  assert.equal(await pages.open(bytes.subarray(0, 20).toString('base64url'), content), null);
  assert.equal(await pages.open('', content), null);
  assert.equal(await pages.open(envelope, Uint8Array.from(randomBytes(32))), null);
});

test('what the service gets to check a passphrase differs from the key, and for each secret', async () => {
  const one = await pages.seal({ about: TEXT, bytes: Buffer.from('x') }, 'said by phone');
  const other = await pages.seal({ about: TEXT, bytes: Buffer.from('x') }, 'said by phone');
  assert.match(one.proof ?? '', /^[A-Za-z0-9_-]{43}$/);
  assert.notEqual(one.proof, other.proof);
  const wrong = await pages.deriveKeys(one.key, 'said by fax');
  assert.notEqual(wrong?.proof, one.proof);
  assert.equal(await pages.open(one.envelope, wrong?.content ?? assert.fail()), null);
});

test('malformed content is rejected: lengths beyond the end, no JSON, another kind, no text', async () => {
  const { key } = await pages.seal({ about: TEXT, bytes: Buffer.from('x') }, '');
  const content = Buffer.from(Uint8Array.from(plainKeys(key, '').content).buffer);
  for (const about of [
    {},
    { kind: 'page' },
    { kind: 'file', name: 1, type: 'x' },
    { kind: 'file', name: 'x' },
    [],
  ]) {
    assert.equal(
      await pages.open(plainSeal(content, randomBytes(12), about, Buffer.from('x')), content),
      null,
    );
  }
});

test('the keys of a link are whole or not accepted, wherever the link was cut', async () => {
  const { key } = await pages.seal({ about: TEXT, bytes: Buffer.from('x') }, '');
  const serviceKey = randomBytes(32).toString('base64url');
  const whole = pages.joinKeys(serviceKey, key);
  assert.deepEqual(pages.splitKeys(whole), { serviceKey, key });
  assert.deepEqual(pages.splitKeys(serviceKey), { serviceKey, key: null });
  for (let length = 0; length < whole.length; length += 1)
    assert.equal(pages.splitKeys(whole.slice(0, length)), null, whole.slice(0, length));
  for (let length = 0; length < serviceKey.length; length += 1)
    assert.equal(pages.splitKeys(serviceKey.slice(0, length)), null);
  for (const wrong of [`2${whole.slice(1)}`, `${serviceKey}.${key}`, `${whole}x`, `1.${whole}`])
    assert.equal(pages.splitKeys(wrong), null, wrong);
});

const NAMES: ReadonlyArray<readonly [given: string, safe: string]> = [
  ['report.pdf', 'report.pdf'],
  ['../../etc/passwd', 'passwd'],
  ['C:\\Users\\a\\b.txt', 'b.txt'],
  ['..', 'file'],
  ['', 'file'],
  ['.bashrc', 'bashrc'],
  ['in\u202efdp.exe', 'infdp.exe'],
  ['a\u0000b\nc', 'abc'],
  ['<img src=x>', 'img src=x'],
  ['x'.repeat(300), 'x'.repeat(200)],
  [`${'契'.repeat(100)}.pdf`, `${'契'.repeat(65)}.pdf`],
  [`${'a'.repeat(199)}😀.txt`, `${'a'.repeat(196)}.txt`],
  [`${'a'.repeat(195)}😀.txt`, `${'a'.repeat(195)}.txt`],
  [`a.${'x'.repeat(300)}`, `a.${'x'.repeat(198)}`],
  [`invoice.pdf${'\u00a0'.repeat(60)}.exe`, 'invoice.pdf .exe'],
  ['a\u2003 \u3000b.txt \u00a0', 'a b.txt'],
  [`invoice.pdf${'\u3164\u2800'.repeat(30)}.exe`, 'invoice.pdf .exe'],
  [' .\u00a0..x', 'x'],
  ['名前.txt', '名前.txt'],
  ['می\u200cخواهم.txt', 'می\u200cخواهم.txt'],
  ['क्\u200dष.pdf', 'क्\u200dष.pdf'],
  ['👩🏽\u200d❤\ufe0f\u200d👨.jpg', '👩🏽\u200d❤\ufe0f\u200d👨.jpg'],
  ['❤\ufe0f\ufe0f\ufe0f.jpg', '❤\ufe0f.jpg'],
  ['م\u200c\u200cخ\u200c.txt', 'مخ.txt'],
  ['in\u200dvoice\u200d.pdf\ufe0f', 'invoice.pdf'],
  ['-rf', '_-rf'],
  ['..\u202e-rf', '_-rf'],
  ['--checkpoint-action=exec=sh x.sh', '_--checkpoint-action=exec=sh x.sh'],
  [`-${'a'.repeat(300)}.txt`, `_-${'a'.repeat(194)}.txt`],
  ['CON', '_CON'],
  ['nul.txt', '_nul.txt'],
  ['com1 .tar.gz', '_com1 .tar.gz'],
  ['LPT²', '_LPT²'],
  ['console.txt', 'console.txt'],
  ['a.exe. . ', 'a.exe'],
  ['nul. .', '_nul'],
  [`${'.'.repeat(100_000)}a${'.'.repeat(100_000)}`, 'a'],
];
for (const [given, safe] of NAMES) {
  test(`a received file named ${JSON.stringify(given.slice(0, 20))} becomes ${safe.slice(0, 20)}`, async () => {
    assert.equal(pages.safeName(given), safe);
    const { content: key } = plainKeys(plainKey(Buffer.alloc(32)), '');
    const content = Buffer.from(Uint8Array.from(key).buffer);
    const envelope = plainSeal(
      content,
      randomBytes(12),
      { kind: 'file', name: given, type: 'text/html' },
      Buffer.from('x'),
    );
    assert.deepEqual((await pages.open(envelope, content))?.about, {
      kind: 'file',
      name: safe,
      type: 'text/html',
    });
  });
}

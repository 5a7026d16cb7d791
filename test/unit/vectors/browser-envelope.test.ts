/**
 * The end-to-end format: frozen vectors, and the pages' own code against a second implementation on
 * node:crypto.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import * as pages from '../../../src/secrets/pages/envelope.js';
import { hex, readVectors } from './data.ts';
import { plainKey, plainKeys, plainOpen, plainSeal } from './plain-browser-envelope.ts';

type Vector = Readonly<
  Record<'secret' | 'key' | 'passphrase' | 'content_key' | 'nonce' | 'content' | 'envelope', string>
> &
  Readonly<{ proof: string | null; about: pages.About }>;
const vectors = readVectors<Vector>('envelope-v1.jsonl');
const TEXT = { kind: 'text' } as const;
/** With what is sealed of a text, and its key. */
const sealed = (passphrase = '') =>
  pages.seal({ about: TEXT, bytes: Buffer.from('x') }, passphrase);

test('frozen envelopes are those of both implementations', async () => {
  assert.equal(vectors.length, 3);
  for (const { passphrase, about, ...vector } of vectors) {
    assert.equal(plainKey(hex(vector.secret)), vector.key);
    for (const keys of [
      plainKeys(vector.key, passphrase),
      (await pages.deriveKeys(vector.key, passphrase)) ?? assert.fail(),
    ]) {
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
  }
});

test('node:crypto opens what the pages seal, of every length around the padding', async () => {
  for (const length of [0, 1, 228, 229, 230, 500, 70_000]) {
    const bytes = randomBytes(length);
    for (const about of [TEXT, { kind: 'file', name: 'ä b.txt', type: 'text/plain' }] as const) {
      const { key, envelope, proof } = await pages.seal({ about, bytes }, '');
      assert.equal(proof, undefined);
      assert.match(key, /^[A-Za-z0-9_-]{48}$/);
      assert.equal(envelope.length, pages.envelopeLength(about, length));
      const opened = plainOpen(plainKeys(key, '').content, envelope);
      assert.deepEqual(opened.about, about);
      assert.ok(opened.bytes.equals(bytes));
      const plain = plainSeal(randomBytes(32), randomBytes(12), about, bytes);
      assert.equal(plain.length, envelope.length, 'the same padding');
    }
  }
});

test('a key with any character changed, missing or added is recognized before it is used', async () => {
  const { key } = await sealed();
  assert.ok(await pages.deriveKeys(key, ''));
  const changed = Array.from(key, (character, at) => {
    const other = character === 'A' ? 'B' : 'A';
    return key.slice(0, at) + other + key.slice(at + 1);
  });
  const others = ['', key.slice(1), `${key}A`, `${key.slice(0, -1)}+`, ' '.repeat(48)];
  for (const wrong of [...changed, ...others])
    assert.equal(await pages.deriveKeys(wrong, ''), null, wrong);
});

test('an altered envelope, another version, another key and malformed content do not open', async () => {
  const { key, envelope } = await sealed();
  const { content } = (await pages.deriveKeys(key, '')) ?? assert.fail();
  const bytes = Buffer.from(envelope, 'base64url');
  assert.ok(await pages.open(envelope, content));
  assert.equal(await pages.open(envelope, Uint8Array.from(randomBytes(32))), null);
  const altered = [0, 1, 12, 13, bytes.length - 17, bytes.length - 1].map((at) => {
    const copy = Buffer.from(bytes);
    copy.writeUInt8(copy.readUInt8(at) ^ 1, at);
    return copy.toString('base64url');
  });
  const strange = [
    {},
    { kind: 'page' },
    { kind: 'file', name: 1, type: 'x' },
    { kind: 'file' },
    { kind: 'file', name: 'x' },
    { kind: 'page', name: 'x', type: 'x' },
    [],
  ];
  const malformed = strange.map((about) =>
    plainSeal(Buffer.from(content), randomBytes(12), about, Buffer.from('x')),
  );
  malformed.push(plainSeal(Buffer.from(content), randomBytes(12), TEXT, Buffer.from('x'), 2));
  for (const wrong of [...altered, bytes.subarray(0, 20).toString('base64url'), '', ...malformed])
    assert.equal(await pages.open(wrong, content), null, wrong.slice(0, 20));
});

test('what the service gets to check a passphrase differs from the key, and for each secret', async () => {
  const one = await sealed('said by phone');
  const other = await sealed('said by phone');
  assert.match(one.proof ?? '', /^[A-Za-z0-9_-]{43}$/);
  const wrong = (await pages.deriveKeys(one.key, 'said by fax')) ?? assert.fail();
  assert.equal(new Set([one.key, one.proof, other.proof, wrong.proof]).size, 4);
  assert.equal(await pages.open(one.envelope, wrong.content), null);
});

test('the keys of a link are whole or not accepted, wherever the link was cut', async () => {
  const { key } = await sealed();
  const serviceKey = randomBytes(32).toString('base64url');
  const whole = pages.joinKeys(serviceKey, key);
  assert.deepEqual(pages.splitKeys(whole), { serviceKey, key });
  assert.deepEqual(pages.splitKeys(serviceKey), { serviceKey, key: null });
  for (const link of [whole, serviceKey])
    for (let length = 0; length < link.length; length += 1)
      assert.equal(pages.splitKeys(link.slice(0, length)), null, link.slice(0, length));
  for (const wrong of [`2${whole.slice(1)}`, `${serviceKey}.${key}`, `${whole}x`, `1.${whole}`])
    assert.equal(pages.splitKeys(wrong), null, wrong);
});

const NAMES: ReadonlyArray<readonly [given: string, safe: string]> = [
  ['report.pdf', 'report.pdf'],
  ['../../etc/passwd', 'passwd'],
  ['C:\\Users\\a\\b.txt', 'b.txt'],
  ['', 'file'],
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
  ['می\u200cخواهم.txt', 'می\u200cخواهم.txt'],
  ['क्\u200dष.pdf', 'क्\u200dष.pdf'],
  ['👩🏽\u200d❤\ufe0f\u200d👨.jpg', '👩🏽\u200d❤\ufe0f\u200d👨.jpg'],
  ['❤\ufe0f\ufe0f\ufe0f.jpg', '❤\ufe0f.jpg'],
  ['م\u200c\u200cخ\u200c.txt', 'مخ.txt'],
  ['in\u200dvoice\u200d.pdf\ufe0f', 'invoice.pdf'],
  ['..\u202e-rf', '_-rf'],
  ['--checkpoint-action=exec=sh x.sh', '_--checkpoint-action=exec=sh x.sh'],
  [`-${'a'.repeat(300)}.txt`, `_-${'a'.repeat(194)}.txt`],
  ['CON', '_CON'],
  ['nul.txt', '_nul.txt'],
  ['com1 .tar.gz', '_com1 .tar.gz'],
  ['LPT²', '_LPT²'],
  ['console.txt', 'console.txt'],
  ['a.exe. . ', 'a.exe'],
  [`${'.'.repeat(100_000)}a${'.'.repeat(100_000)}`, 'a'],
];
test('a received file gets a safe name', async () => {
  const { content } = plainKeys(plainKey(Buffer.alloc(32)), '');
  for (const [given, safe] of NAMES) {
    assert.equal(pages.safeName(given), safe);
    const about = { kind: 'file', name: given, type: 'text/html' };
    const envelope = plainSeal(content, randomBytes(12), about, Buffer.from('x'));
    const opened = await pages.open(envelope, Uint8Array.from(content));
    assert.deepEqual(opened?.about, { ...about, name: safe });
  }
});

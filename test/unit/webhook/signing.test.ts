/** Signing secrets at rest: only the WEBHOOK_SECRET that sealed them opens them. */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import {
  unsealServiceSecret,
  type SealedSecret,
  sealSecret,
} from '../../../src/platform/crypto/service-secret.ts';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import { SIGNING_SECRETS, WEBHOOK_SECRET } from '../../support/senders.ts';
import { plainPad, plainSeal } from '../vectors/plain-envelope.ts';

const key = createSigningKey(WEBHOOK_SECRET);
const SECRET = SIGNING_SECRETS.notion;

test('a sealed secret is opened again, whatever characters it has', () => {
  for (const secret of [...Object.values(SIGNING_SECRETS), 'ключ 🔑 \u0000', 'x'.repeat(4_000)])
    assert.equal(unsealServiceSecret([key], sealSecret(key, secret)), secret);
  assert.equal(
    unsealServiceSecret([createSigningKey(WEBHOOK_SECRET)], sealSecret(key, SECRET)),
    SECRET,
    'after a restart',
  );
});

test('a secret is stored as one to share without limits', () => {
  const serverKey = createServerKey(WEBHOOK_SECRET);
  const terms = {
    serverSecret: WEBHOOK_SECRET,
    clientKey: randomBytes(32),
    id: randomUUID(),
    expiresAt: null,
    maxReads: null,
  };
  const sealed = plainSeal(terms, randomBytes(12), plainPad(Buffer.from(SECRET)));
  const row = { id: terms.id, key_id: serverKey.id, client_key: terms.clientKey, ...sealed };
  assert.equal(unsealServiceSecret([serverKey], row), SECRET);
});

test('no stored column contains the secret, and sealing it twice gives different values', () => {
  const one = sealSecret(key, SECRET);
  const other = sealSecret(key, SECRET);
  for (const field of [one.client_key, one.commitment, one.blob]) {
    for (const form of [
      SECRET,
      Buffer.from(SECRET).toString('base64').slice(0, 20),
      Buffer.from(SECRET).toString('hex'),
    ])
      assert.ok(!field.includes(form));
  }
  assert.notEqual(one.id, other.id);
  for (const field of ['client_key', 'commitment', 'blob'] as const)
    assert.notDeepEqual(one[field], other[field]);
  assert.equal(
    sealSecret(key, 'x'.repeat(8)).blob.length,
    one.blob.length,
    'nor does its length show',
  );
});

test('another WEBHOOK_SECRET opens nothing, even if the key id is edited', () => {
  const sealed = sealSecret(key, SECRET);
  for (const secret of [
    `${WEBHOOK_SECRET}x`,
    WEBHOOK_SECRET.slice(1),
    WEBHOOK_SECRET.toUpperCase(),
    '',
  ]) {
    const another = createSigningKey(secret);
    assert.notEqual(another.id, key.id);
    assert.equal(unsealServiceSecret([another], sealed), null);
    assert.equal(
      unsealServiceSecret([another], { ...sealed, key_id: another.id }),
      null,
      'with the key id edited',
    );
  }
});

test('the same text as SERVER_SECRET is another key', () => {
  const ofSecrets = createServerKey(WEBHOOK_SECRET);
  assert.notEqual(ofSecrets.id, key.id);
  assert.equal(unsealServiceSecret([{ ...ofSecrets, id: key.id }], sealSecret(key, SECRET)), null);
});

test('a row with any altered bit is not opened', () => {
  const sealed = sealSecret(key, SECRET);
  for (const field of ['client_key', 'commitment', 'blob'] as const) {
    for (let bit = 0; bit < sealed[field].length * 8; bit += 1) {
      const bytes = Buffer.from(sealed[field]);
      bytes[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      assert.equal(
        unsealServiceSecret([key], { ...sealed, [field]: bytes }),
        null,
        `${field} ${bit}`,
      );
    }
  }
  for (const cut of [0, 31]) {
    const client_key = sealed.client_key.subarray(0, cut);
    assert.equal(unsealServiceSecret([key], { ...sealed, client_key }), null, `${cut} bytes`);
  }
  for (const cut of [0, 1, sealed.blob.length - 1])
    assert.equal(
      unsealServiceSecret([key], { ...sealed, blob: sealed.blob.subarray(0, cut) }),
      null,
    );
});

test('a row that is moved to another id is not opened', () => {
  const one = sealSecret(key, SECRET);
  const other = sealSecret(key, 'another secret');
  const mixtures: readonly SealedSecret[] = [
    { ...one, id: other.id },
    { ...one, blob: other.blob },
    { ...one, blob: other.blob, commitment: other.commitment },
    { ...one, client_key: other.client_key },
  ];
  for (const mixture of mixtures) assert.equal(unsealServiceSecret([key], mixture), null);
});

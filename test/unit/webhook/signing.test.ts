/**
 * Signing secrets at rest: only the WEBHOOK_SECRET that sealed them opens them. That no bit of an
 * envelope may change: `test/unit/crypto/envelope.test.ts`.
 */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { unsealServiceSecret, sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import { SIGNING_SECRETS, WEBHOOK_SECRET } from '../../support/senders.ts';
import { plainPad, plainSeal } from '../vectors/plain-envelope.ts';

const key = createSigningKey(WEBHOOK_SECRET);
const SECRET = SIGNING_SECRETS.notion;

test('a sealed secret is opened again, whatever characters it has', () => {
  for (const secret of [SECRET, 'ключ 🔑 \u0000', 'x'.repeat(4_000)])
    assert.equal(unsealServiceSecret([key], sealSecret(key, secret)), secret);
  const afterRestart = createSigningKey(WEBHOOK_SECRET);
  assert.equal(unsealServiceSecret([afterRestart], sealSecret(key, SECRET)), SECRET);
});

test('a secret is stored as one to share without limits', () => {
  const serverKey = createServerKey(WEBHOOK_SECRET);
  const terms = {
    ...{ serverSecret: WEBHOOK_SECRET, clientKey: randomBytes(32), id: randomUUID() },
    ...{ expiresAt: null, maxReads: null },
  };
  const sealed = plainSeal(terms, randomBytes(12), plainPad(Buffer.from(SECRET)));
  const row = { id: terms.id, key_id: serverKey.id, client_key: terms.clientKey, ...sealed };
  assert.equal(unsealServiceSecret([serverKey], row), SECRET);
});

test('another WEBHOOK_SECRET, or the same as SERVER_SECRET, opens nothing', () => {
  const sealed = sealSecret(key, SECRET);
  const texts = [`${WEBHOOK_SECRET}x`, WEBHOOK_SECRET.slice(1), WEBHOOK_SECRET.toUpperCase(), ''];
  for (const another of [...texts.map(createSigningKey), createServerKey(WEBHOOK_SECRET)]) {
    assert.notEqual(another.id, key.id);
    for (const key_id of [key.id, another.id])
      assert.equal(unsealServiceSecret([another], { ...sealed, key_id }), null);
    assert.equal(unsealServiceSecret([{ ...another, id: key.id }], sealed), null);
  }
});

test('a row that is cut, or made of two, is not opened', () => {
  const sealed = sealSecret(key, SECRET);
  const { client_key, blob, commitment, id } = sealSecret(key, 'another secret');
  assert.notEqual(sealed.id, id);
  assert.notDeepEqual(sealed.client_key, client_key, 'each is new');
  for (const row of [
    ...[0, 31].map((end) => ({ ...sealed, client_key: sealed.client_key.subarray(0, end) })),
    { ...sealed, blob: sealed.blob.subarray(0, -1) },
    { ...sealed, id },
    { ...sealed, client_key },
    { ...sealed, blob },
    { ...sealed, blob, commitment },
  ])
    assert.equal(unsealServiceSecret([key], row), null);
});

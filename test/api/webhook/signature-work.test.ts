/** How often the body of a request is verified with a public key. */
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { after, test } from 'node:test';
import { ask, launch } from '../../support/gatehouse.ts';
import {
  addToken,
  openWebhook,
  PUBLIC_KEYS,
  SAMPLES,
  signatureOf,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import { rotateSecret } from '../../../src/webhook/store/signing-secrets.ts';

/** The verifications themselves are unchanged. */
let verified = 0;
const { verify } = crypto;
crypto.verify = ((...input: Parameters<typeof verify>) => {
  verified += 1;
  return verify(...input);
}) as typeof verify;
syncBuiltinESMExports();

const gatehouse = await launch(['webhook'], { WEBHOOK_SECRET });
const { databaseUrl } = gatehouse;
const database = openWebhook({ after }, databaseUrl);
const [KEY = '', OTHER_KEY = ''] = PUBLIC_KEYS.map(({ standard }) => standard);
const WRONG = `v1a,${'A'.repeat(86)}==`;

const sample = SAMPLES.standard();
const body = JSON.stringify(sample.body);
const signed = signatureOf('standard', KEY, body, { id: sample.deliveryId });
const right = signed['webhook-signature'] ?? '';

/** @returns the status, and how often a signature was verified meanwhile */
async function send(token: string, signatures: readonly string[]) {
  verified = 0;
  const headers = { ...signed, 'webhook-signature': signatures.join(' ') };
  const url = `${gatehouse.url.webhook}/webhook`;
  const { status } = await ask('POST', url, { bearer: token, body, headers });
  return { status, verified };
}

test('at most two signatures of a request are verified with each public key', async () => {
  const { token } = await addToken(database, 'standard', KEY);
  const many = new Array<string>(8).fill(WRONG);
  for (const state of ['looked up', 'cached', 'cached'])
    assert.deepEqual(await send(token, many), { status: 401, verified: 2 }, state);
  assert.deepEqual(await send(token, [WRONG, right]), { status: 200, verified: 2 });
  assert.deepEqual(await send(token, [right]), { status: 200, verified: 1 });
  assert.deepEqual(await send(token, [WRONG, WRONG, right]), { status: 401, verified: 2 });
  assert.deepEqual(await send(token, []), { status: 401, verified: 0 });
});

test('with two active keys, each of two signatures is verified with each', async () => {
  const { id, token } = await addToken(database, 'standard', KEY);
  const sealed = sealSecret(createSigningKey(WEBHOOK_SECRET), OTHER_KEY);
  await rotateSecret(database, id, 3_600, sealed);
  const other = signatureOf('standard', OTHER_KEY, body, {
    id: sample.deliveryId,
    at: signed['webhook-timestamp'] ?? '',
  });
  const signatures = [right, other['webhook-signature'] ?? ''];
  for (const one of signatures) {
    assert.equal((await send(token, [one])).status, 200);
    assert.equal((await send(token, [WRONG, one])).status, 200, 'the sender signs with two keys');
    assert.equal((await send(token, [one, WRONG])).status, 200);
  }
  const many = new Array<string>(8).fill(WRONG);
  assert.deepEqual(await send(token, many), { status: 401, verified: 4 });
});

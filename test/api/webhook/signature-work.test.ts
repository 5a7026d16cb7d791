/** How often the body of a request is verified with a public key. */
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { test } from 'node:test';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import { rotateSecret } from '../../../src/webhook/store/signing-secrets.ts';
import { ask } from '../../support/gatehouse.ts';
import { addToken, PUBLIC_KEYS, signatureOf, WEBHOOK_SECRET } from '../../support/senders.ts';
import { launchWebhook } from '../../support/webhook.ts';

/** The verifications themselves are unchanged. */
let verified = 0;
const { verify } = crypto;
crypto.verify = ((...input: Parameters<typeof verify>) => {
  verified += 1;
  return verify(...input);
}) as typeof verify;
syncBuiltinESMExports();

const { database, base } = await launchWebhook();
const [KEY = '', OTHER_KEY = ''] = PUBLIC_KEYS.map(({ standard }) => standard);
const WRONG = `v1a,${'A'.repeat(86)}==`;
const MANY = new Array<string>(8).fill(WRONG);

const body = '{"type":"contact.created"}';
const signed = signatureOf('standard', KEY, body);
const at = signed['webhook-timestamp'] ?? '';
const right = signed['webhook-signature'] ?? '';
const other = signatureOf('standard', OTHER_KEY, body, { at })['webhook-signature'] ?? '';

/** @returns the status, and how often a signature was verified meanwhile */
async function send(token: string, ...signatures: readonly string[]) {
  verified = 0;
  const headers = { ...signed, 'webhook-signature': signatures.join(' ') };
  const { status } = await ask('POST', base, { bearer: token, body, headers });
  return [status, verified];
}

test('at most two signatures of a request are verified with each public key', async () => {
  const { id, token } = await addToken(database, 'standard', KEY);
  for (const state of ['looked up', 'cached', 'cached'])
    assert.deepEqual(await send(token, ...MANY), [401, 2], state);
  assert.deepEqual(await send(token, WRONG, right), [200, 2]);
  assert.deepEqual(await send(token, right), [200, 1]);
  assert.deepEqual(await send(token, WRONG, WRONG, right), [401, 2]);
  assert.deepEqual(await send(token), [401, 0]);

  const sealed = sealSecret(createSigningKey(WEBHOOK_SECRET), OTHER_KEY);
  await rotateSecret(database, id, 3_600, sealed);
  // The sender signs with two keys.
  for (const list of [[right], [WRONG, other], [right, WRONG], [other]])
    assert.equal((await send(token, ...list))[0], 200);
  assert.deepEqual(await send(token, ...MANY), [401, 4], 'each with either key');
});

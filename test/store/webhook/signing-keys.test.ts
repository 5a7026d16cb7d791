/** A rotation of WEBHOOK_SECRET, with replicas on either value. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import { rotateSecret } from '../../../src/webhook/store/signing-secrets.ts';
import { runCommand } from '../../support/commands.ts';
import { ask, type Gatehouse, startGatehouse } from '../../support/gatehouse.ts';
import { addToken, signatureOf, WEBHOOK_SECRET } from '../../support/senders.ts';
import { launchWebhook } from '../../support/webhook.ts';

const SECRETS = { before: `${WEBHOOK_SECRET}-of-before`, now: WEBHOOK_SECRET };
const now = await launchWebhook();
const { sql, database, databaseUrl } = now;
const before = await startGatehouse({ after }, ['webhook'], databaseUrl, {
  WEBHOOK_SECRET: SECRETS.before,
});
const replicas = { before, now };
const WHICH = ['before', 'now'] as const;

/** The secrets of a sender, sealed under the WEBHOOK_SECRET of the same name. */
const OWN = {
  standard: {
    before: `whsec_${Buffer.alloc(24, 1).toString('base64')}`,
    now: `whsec_${Buffer.alloc(24, 2).toString('base64')}`,
  },
  github: { before: 'github secret of before', now: 'github secret of now' },
};
const SOURCES = ['standard', 'github'] as const;
type Source = (typeof SOURCES)[number];

/** @returns the status of the event, or the error's */
async function send(to: Gatehouse, source: Source, token: string, secret: string) {
  const body = JSON.stringify({ type: 'x' });
  const headers = {
    ...(source === 'github' ? { 'x-github-event': 'x', 'x-github-delivery': randomUUID() } : {}),
    ...signatureOf(source, secret, body, { id: randomUUID() }),
  };
  const answer = await ask('POST', `${to.url.webhook}/webhook`, { bearer: token, body, headers });
  if (answer.status === 200) return answer.json.status;
  assert.match(answer.headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
  return `${answer.status} ${answer.json.error.code}`;
}
const addOld = (source: Source) => addToken(database, source, OWN[source].before, SECRETS.before);
const countEvents = async () => (await sql`select from webhook.events`).length;
const keyErrors = ({ log }: Gatehouse) =>
  log().filter(({ message }) => String(message).startsWith('WEBHOOK_SECRET is missing or wrong'))
    .length;

for (const source of SOURCES) {
  test(`${source}: each replica accepts a signature if it can open its secret, and others get 503`, async () => {
    const { id, token } = await addOld(source);
    const assertAccepted = async (
      to: keyof typeof SECRETS,
      secret: keyof typeof SECRETS,
      isAccepted: boolean,
    ) => {
      const events = await countEvents();
      const logged = keyErrors(replicas[to]);
      const outcome = await send(replicas[to], source, token, OWN[source][secret]);
      assert.equal(outcome, isAccepted ? 'accepted' : '503 key_unknown');
      const added = [(await countEvents()) - events, keyErrors(replicas[to]) - logged];
      assert.deepEqual(added, isAccepted ? [1, 0] : [0, 1]);
    };
    for (const secret of WHICH) await assertAccepted('now', secret, false);
    await assertAccepted('before', 'before', true);
    const sealed = sealSecret(createSigningKey(SECRETS.now), OWN[source].now);
    await rotateSecret(database, id, 3_600, sealed);
    for (const to of WHICH)
      for (const secret of WHICH) await assertAccepted(to, secret, to === secret);
  });
}

test('a replica with both values opens secrets under either; token reseal seals them anew', async (t) => {
  const given = { WEBHOOK_SECRET: SECRETS.now, WEBHOOK_SECRET_PREVIOUS: SECRETS.before };
  const tokens = new Map<Source, string>();
  for (const source of SOURCES) tokens.set(source, (await addOld(source)).token);
  const both = await startGatehouse(t, ['webhook'], databaseUrl, given);
  const sendTo = async (to: Gatehouse) => {
    for (const [source, token] of tokens)
      assert.equal(await send(to, source, token, OWN[source].before), 'accepted', source);
  };
  await sendTo(both);
  assert.equal(keyErrors(both), 0);
  const told = both.log().filter(({ message }) => String(message).includes('token reseal'));
  assert.equal(told.length, 1, 'the log says how to finish');

  const reseal = async (more: Readonly<Record<string, string>> = {}) => {
    const environment = { DATABASE_URL: databaseUrl, WEBHOOK_SECRET: SECRETS.now, ...more };
    const { code, stderr } = await runCommand(['token', 'reseal'], environment);
    return `${code} ${stderr}`;
  };
  const counts = async (which: keyof typeof SECRETS) => {
    const { id } = createSigningKey(SECRETS[which]);
    return (await sql`select from webhook.signing_secrets where key_id = ${id}`).length;
  };
  const old = await counts('before');
  const all = old + (await counts('now'));
  const missing = new RegExp(`^1 .*${old} could not be decrypted: add the WEBHOOK_SECRET`, 's');
  assert.match(await reseal(), missing);
  assert.equal(await counts('before'), old, 'what cannot be opened is kept');
  assert.equal(await reseal(given), `0 ${old} signing secrets encrypted under WEBHOOK_SECRET.\n`);
  assert.deepEqual([await counts('before'), await counts('now')], [0, all]);
  for (const to of [both, now]) await sendTo(to);
  assert.match(await reseal(given), /^0 0 signing secrets/);
});

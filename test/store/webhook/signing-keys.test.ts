/** A rotation of WEBHOOK_SECRET, with replicas on either value. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import { rotateSecret } from '../../../src/webhook/store/signing-secrets.ts';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, type Gatehouse, startGatehouse } from '../../support/gatehouse.ts';
import {
  addToken,
  openWebhook,
  signatureOf,
  type SignedSource,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';

const { url, sql } = await createDatabase();
const SECRETS = { before: `${WEBHOOK_SECRET}-of-before`, now: WEBHOOK_SECRET };
const replicas = {
  before: await startGatehouse({ after }, ['webhook'], url, { WEBHOOK_SECRET: SECRETS.before }),
  now: await startGatehouse({ after }, ['webhook'], url, { WEBHOOK_SECRET: SECRETS.now }),
};
const database = openWebhook({ after }, url);

/**
 * The sender's own secrets: the old one is sealed under the old WEBHOOK_SECRET, the new one under
 * the new.
 */
const OWN = {
  standard: {
    before: `whsec_${Buffer.alloc(24, 1).toString('base64')}`,
    now: `whsec_${Buffer.alloc(24, 2).toString('base64')}`,
  },
  github: { before: 'github secret of before', now: 'github secret of now' },
  stripe: { before: 'whsec_stripe_of_before', now: 'whsec_stripe_of_now' },
  slack: { before: 'slack secret of before', now: 'slack secret of now' },
  notion: { before: 'secret_notion_of_before', now: 'secret_notion_of_now' },
};
const SOURCES = ['standard', 'github', 'stripe', 'slack', 'notion'] as const;

function send(to: Gatehouse, source: SignedSource, token: string, secret: string) {
  const body = JSON.stringify({ id: randomUUID(), event_id: randomUUID(), type: 'x' });
  const named: Record<string, string> =
    source === 'github' ? { 'x-github-event': 'x', 'x-github-delivery': randomUUID() } : {};
  return ask('POST', `${to.url.webhook}/webhook`, {
    bearer: token,
    body,
    headers: { ...named, ...signatureOf(source, secret, body, { id: randomUUID() }) },
  });
}
const countEvents = async () => (await sql`select from webhook.events`).length;
const keyErrors = ({ log }: Gatehouse) =>
  log().filter(
    ({ level, message }) =>
      level === 'error' &&
      message ===
        'WEBHOOK_SECRET is missing or wrong: signing secrets are sealed under another one',
  ).length;

test('a token under the other WEBHOOK_SECRET gets 503, and is accepted by the other replica', async () => {
  for (const source of SOURCES) {
    const { token } = await addToken(database, source, OWN[source].before, SECRETS.before);
    const events = await countEvents();
    const logged = keyErrors(replicas.now);
    for (const secret of [OWN[source].before, OWN[source].now]) {
      const { status, json, headers } = await send(replicas.now, source, token, secret);
      assert.deepEqual([status, json.error.code], [503, 'key_unknown'], source);
      assert.match(headers.get('retry-after') ?? '', /^[1-9][0-9]*$/, 'the sender is to come back');
    }
    assert.equal(await countEvents(), events, source);
    assert.equal(keyErrors(replicas.now), logged + 2, source);
    assert.equal(
      (await send(replicas.before, source, token, OWN[source].before)).json.status,
      'accepted',
      source,
    );
  }
});

test('of two overlapping secrets each replica accepts the one it can open, and nothing else', async () => {
  for (const source of SOURCES) {
    const { id, token } = await addToken(database, source, OWN[source].before, SECRETS.before);
    await rotateSecret(
      database,
      id,
      3_600,
      sealSecret(createSigningKey(SECRETS.now), OWN[source].now),
    );
    for (const which of ['before', 'now'] as const) {
      assert.equal(
        (await send(replicas[which], source, token, OWN[source][which])).json.status,
        'accepted',
        `${source}, ${which}`,
      );
      const events = await countEvents();
      const other = await send(
        replicas[which],
        source,
        token,
        OWN[source][which === 'now' ? 'before' : 'now'],
      );
      assert.equal(other.status, 503, `${source}, ${which}: ${other.text}`);
      assert.equal(await countEvents(), events, `${source}, ${which}`);
    }
  }
});

test('a replica with both values opens secrets under either; token reseal seals them anew', async (t) => {
  const given = { WEBHOOK_SECRET: SECRETS.now, WEBHOOK_SECRET_PREVIOUS: SECRETS.before };
  const tokens: Array<{ source: (typeof SOURCES)[number]; token: string }> = [];
  for (const source of SOURCES) {
    tokens.push({
      source,
      token: (await addToken(database, source, OWN[source].before, SECRETS.before)).token,
    });
  }
  const both = await startGatehouse(t, ['webhook'], url, given);
  const sendTo = async (to: Gatehouse) => {
    for (const { source, token } of tokens) {
      assert.equal(
        (await send(to, source, token, OWN[source].before)).json.status,
        'accepted',
        source,
      );
    }
  };
  await sendTo(both);
  assert.equal(keyErrors(both), 0);
  assert.ok(
    both.log().some(({ message }) => String(message).includes('token reseal')),
    'the log says how to finish',
  );

  const reseal = (more: Readonly<Record<string, string>>) =>
    runCommand(['token', 'reseal'], {
      DATABASE_URL: url,
      WEBHOOK_SECRET: SECRETS.now,
      ...more,
    });
  const count = async () => {
    const rows =
      await sql`select key_id, count(*)::int as count from webhook.signing_secrets group by key_id`;
    return Object.fromEntries(rows.map((row) => [String(row.key_id), Number(row.count)]));
  };
  const ids = { old: createSigningKey(SECRETS.before).id, now: createSigningKey(SECRETS.now).id };
  const before = await count();
  const blind = await reseal({});
  assert.equal(blind.code, 1, blind.stderr);
  assert.match(
    blind.stderr,
    new RegExp(`${before[ids.old]} could not be decrypted: add the WEBHOOK_SECRET`),
  );
  assert.deepEqual(await count(), before, 'what cannot be opened is kept');

  const done = await reseal(given);
  assert.deepEqual(
    [done.code, done.stderr],
    [0, `${before[ids.old]} signing secrets encrypted under WEBHOOK_SECRET.\n`],
  );
  assert.deepEqual(await count(), { [ids.now]: (before[ids.old] ?? 0) + (before[ids.now] ?? 0) });
  await sendTo(both);
  await sendTo(replicas.now);
  assert.match((await reseal(given)).stderr, /^0 signing secrets/);
});

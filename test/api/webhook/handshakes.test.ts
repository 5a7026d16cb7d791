/** Handshakes of senders, and the roles of tokens. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { listTokens } from '../../../src/webhook/store/tokens.ts';
import { sealSecret, unsealServiceSecret } from '../../../src/platform/crypto/service-secret.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import {
  acceptPending,
  findSecrets,
  fingerprint,
  rotateSecret,
} from '../../../src/webhook/store/signing-secrets.ts';
import { untilLocked } from '../../support/connections.ts';
import { type Answer, ask, startGatehouse, assertStatus } from '../../support/gatehouse.ts';
import { test } from '../../support/until.ts';
import {
  addToken,
  openWebhook,
  signatureOf,
  type SignedSource,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { launchWebhook } from '../../support/webhook.ts';

const gatehouse = await launchWebhook();
const { sql, databaseUrl, database, base } = gatehouse;
const key = createSigningKey(WEBHOOK_SECRET);
const other = connect(databaseUrl);
after(() => other.end());
const github = await addToken(database, 'github');
const slack = await addToken(database, 'slack');
const stripe = await addToken(database, 'stripe');

/** The pending secret of a token; null if there is none. */
async function showPending(id: string): Promise<string | null> {
  const [pending] = await findSecrets(database, id, 'pending');
  return pending ? unsealServiceSecret([key], pending) : null;
}

const counts = async () => ({
  ...(
    await sql`select (select count(*)::int from webhook.events) as events, (select count(*)::int
      from webhook.signing_secrets) as secrets`
  )[0],
});

async function storesNothing(act: () => Promise<void>): Promise<void> {
  const before = await counts();
  await act();
  assert.deepEqual(await counts(), before);
}

const send = (
  source: SignedSource,
  token: string,
  body: unknown,
  secret: string | null,
  headers: Record<string, string> = {},
  to = base,
): Promise<Answer> => {
  const text = JSON.stringify(body);
  return ask('POST', to, {
    bearer: token,
    body: text,
    headers: { ...(secret === null ? {} : signatureOf(source, secret, text)), ...headers },
  });
};
const refusal = (answer: Answer) => [answer.status, answer.json?.error?.code];
const UNAUTHORIZED = [401, 'unauthorized'];

test('github: a signed ping gets pong, an unsigned one 401, and neither is an event', async () => {
  await storesNothing(async () => {
    const headers = { 'x-github-event': 'ping', 'x-github-delivery': randomUUID() };
    const answer = await send(
      'github',
      github.token,
      { zen: 'Keep it logically awesome.', hook_id: 1 },
      SIGNING_SECRETS.github,
      headers,
    );
    assert.deepEqual([answer.status, answer.text], [200, '{"status":"pong"}']);
    assert.deepEqual(
      refusal(await send('github', github.token, { zen: 'x' }, null, headers)),
      UNAUTHORIZED,
    );
    assert.deepEqual(
      refusal(await send('github', github.token, { zen: 'x' }, 'wrong secret', headers)),
      UNAUTHORIZED,
    );
  });
});

test('slack: a signed url_verification gets its challenge, an unsigned one 401', async () => {
  await storesNothing(async () => {
    const body = { token: 'x', challenge: '3eZbrw1aB1"<é', type: 'url_verification' };
    const answer = await send('slack', slack.token, body, SIGNING_SECRETS.slack);
    assert.equal(answer.status, 200);
    assert.deepEqual(answer.json, { challenge: body.challenge });
    assert.deepEqual(refusal(await send('slack', slack.token, body, null)), UNAUTHORIZED);
  });
});

const NOTION = 'secret_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG';
const DAY = 86_400;
const event = () => ({ id: randomUUID(), type: 'page.created' });

test('notion: its secret is pending until it is confirmed, and no event is accepted before', async () => {
  const { id, token } = await addToken(database, 'notion', null);
  const isPending = async () => (await listTokens(database)).find((one) => one.id === id)?.pending;
  assert.equal(await isPending(), false);
  await storesNothing(async () => {
    for (const secret of [NOTION, null, ''])
      assert.deepEqual(
        refusal(await send('notion', token, event(), secret)),
        UNAUTHORIZED,
        'before any token',
      );
  });
  const answer = await send('notion', token, { verification_token: NOTION }, null);
  assert.deepEqual([answer.status, answer.text], [200, '{"status":"pending"}']);
  assert.equal(await isPending(), true);
  await storesNothing(async () =>
    assert.deepEqual(
      refusal(await send('notion', token, event(), NOTION)),
      UNAUTHORIZED,
      'before it is confirmed',
    ),
  );
  assert.equal(await showPending(id), NOTION);
  await storesNothing(async () =>
    assert.deepEqual(
      refusal(await send('notion', token, event(), NOTION)),
      UNAUTHORIZED,
      'after a mere look',
    ),
  );
  assert.equal(await acceptPending(database, id, [key], fingerprint(NOTION), DAY), true);
  assert.equal(await isPending(), false);
  assert.deepEqual(
    [await showPending(id), await acceptPending(database, id, [key], fingerprint(NOTION), DAY)],
    [null, false],
    'there is no other',
  );
  const sent = event();
  const accepted = await send('notion', token, sent, NOTION);
  assert.deepEqual([accepted.status, accepted.json.status], [200, 'accepted'], accepted.text);
  assert.deepEqual(refusal(await send('notion', token, event(), null)), UNAUTHORIZED);
  assert.ok(
    !(gatehouse.stdout() + gatehouse.stderr()).includes(NOTION.slice(0, 20)),
    'it is nowhere in the log',
  );
  const [row] = await sql`select string_agg(s::text, '') as all from webhook.signing_secrets s`;
  assert.ok(!String(row?.all).includes(Buffer.from(NOTION).toString('hex').slice(0, 20)));
});

test('notion: an active secret stays active, and the last secret sent is pending', async () => {
  const { id, token } = await addToken(database, 'notion', NOTION);
  for (const attacker of ['secret_of_an_attacker_1', 'secret_of_an_attacker_2']) {
    assert.equal(
      (await send('notion', token, { verification_token: attacker }, null)).json.status,
      'pending',
    );
    assert.deepEqual(refusal(await send('notion', token, event(), attacker)), UNAUTHORIZED);
    assert.equal((await send('notion', token, event(), NOTION)).json.status, 'accepted');
  }
  const rows =
    await sql`select purpose, expires_at from webhook.signing_secrets where token_id = ${id}
      order by purpose`;
  assert.deepEqual(
    [...rows].map((row) => ({ ...row })),
    [
      { purpose: 'pending', expires_at: null },
      { purpose: 'verify', expires_at: null },
    ],
  );
  assert.equal(await showPending(id), 'secret_of_an_attacker_2');
});

test('notion: only the secret with the given fingerprint is activated; the old one expires later', async () => {
  const { id, token } = await addToken(database, 'notion', NOTION);
  const seen = 'secret_that_was_seen';
  const since = 'secret_that_came_since';
  for (const secret of [seen, since])
    await send('notion', token, { verification_token: secret }, null);
  for (const wrong of [
    fingerprint(seen),
    fingerprint(NOTION),
    '',
    fingerprint(since).slice(0, -1),
    `${fingerprint(since)}0`,
  ])
    assert.equal(await acceptPending(database, id, [key], wrong, DAY), false);
  assert.deepEqual(refusal(await send('notion', token, event(), since)), UNAUTHORIZED);
  assert.equal(await acceptPending(database, id, [key], fingerprint(since), DAY), true);
  for (const secret of [NOTION, since])
    assert.equal((await send('notion', token, event(), secret)).json.status, 'accepted');
  assert.deepEqual(refusal(await send('notion', token, event(), seen)), UNAUTHORIZED);
  const [row] =
    await sql`update webhook.signing_secrets set expires_at = now() where token_id = ${id}
      and expires_at > now() + interval '23 hours' and expires_at <= now() + interval '24 hours'
        returning 1 as ended`;
  assert.equal(row?.ended, 1);
  assert.deepEqual(refusal(await send('notion', token, event(), NOTION)), UNAUTHORIZED);
  assert.equal((await send('notion', token, event(), since)).json.status, 'accepted');
});

test('during a rotation of WEBHOOK_SECRET only secrets sealed under the new one are opened', async () => {
  const { id, token } = await addToken(
    database,
    'stripe',
    SIGNING_SECRETS.stripe,
    `${WEBHOOK_SECRET}-of-before`,
  );
  const body = () => ({ id: `evt_${randomUUID()}`, type: 'x' });
  assert.deepEqual(refusal(await send('stripe', token, body(), SIGNING_SECRETS.stripe)), [
    503,
    'key_unknown',
  ]);
  await rotateSecret(database, id, DAY, sealSecret(key, 'whsec_of_after'));
  assert.equal((await send('stripe', token, body(), 'whsec_of_after')).status, 200);
  // Not 401: the signature may be valid.
  assert.deepEqual(refusal(await send('stripe', token, body(), SIGNING_SECRETS.stripe)), [
    503,
    'key_unknown',
  ]);
  assert.deepEqual(refusal(await send('stripe', token, body(), null)), UNAUTHORIZED);
  await sql`delete from webhook.signing_secrets where token_id = ${id}`;
});

test('notion: an event that contains a verification_token must be signed', async () => {
  const { id, token } = await addToken(database, 'notion', NOTION);
  await storesNothing(async () => {
    for (const body of [
      { ...event(), verification_token: 'secret_x' },
      { verification_token: 7 },
      { verification_token: null },
      { verification_token: '' },
      { verification_token: 'x'.repeat(256) },
      { verification_token: 'secret_\u001b[2J' },
      { verification_token: 'secret x y z' },
      [{ verification_token: 'secret_x' }],
    ]) {
      assert.deepEqual(refusal(await send('notion', token, body, null)), UNAUTHORIZED);
    }
  });
  assert.equal((await listTokens(database)).find((one) => one.id === id)?.pending, false);
});

test('no other source takes a secret from a request, and no wrong token can send one', async () => {
  await storesNothing(async () => {
    for (const { token } of [github, slack, stripe])
      assert.deepEqual(
        refusal(await send('github', token, { verification_token: NOTION }, null)),
        UNAUTHORIZED,
      );
    assert.deepEqual(
      refusal(await send('notion', 'a wrong token', { verification_token: NOTION }, null)),
      UNAUTHORIZED,
    );
  });
});

test('of two signing secrets that are set at once, one replaces the other', async (t) => {
  const { id } = await addToken(database, 'github');
  let rotations: Array<Promise<boolean>> = [];
  await other.begin(async (held) => {
    await held`select from webhook.signing_secrets where token_id = ${id} for update`;
    rotations = ['first', 'second'].map((secret) =>
      rotateSecret(openWebhook(t, databaseUrl), id, DAY, sealSecret(key, secret)),
    );
    await untilLocked(sql, 2);
  });
  assert.deepEqual(await Promise.all(rotations), [true, true]);
  const rows = await sql`select expires_at from webhook.signing_secrets where token_id = ${id}`;
  assert.equal(rows.length, 3);
  assert.equal(rows.filter(({ expires_at }) => expires_at === null).length, 1);
});

const WRONG_SECRET =
  'WEBHOOK_SECRET is missing or wrong: signing secrets are sealed under another one';

for (const [which, environment] of [
  ['missing', { WEBHOOK_SECRET: undefined }],
  ['another one', { WEBHOOK_SECRET: `${WEBHOOK_SECRET}-other` }],
] as const) {
  test(`with WEBHOOK_SECRET ${which}, signed requests get 503, are logged,
    and the start says so`, async (t) => {
    const { token } = await addToken(database, 'notion', NOTION);
    const other = await startGatehouse(t, ['webhook'], databaseUrl, environment);
    const errors = () =>
      other.log().filter(({ level, message }) => level === 'error' && message === WRONG_SECRET);
    const [atStart, ...more] = errors();
    assert.deepEqual([atStart?.key_id, more.length], [key.id, 0]);
    assert.ok(Number(atStart?.secrets) > 0);
    const to = `${other.url.webhook}/webhook`;
    const ping = { 'x-github-event': 'ping' };
    await storesNothing(async () => {
      const body = { id: `evt_${randomUUID()}`, type: 'x' };
      for (const answer of [
        await send('stripe', stripe.token, body, SIGNING_SECRETS.stripe, {}, to),
        await send('notion', token, event(), NOTION, {}, to),
        await send('github', github.token, {}, SIGNING_SECRETS.github, ping, to),
      ]) {
        assert.deepEqual(refusal(answer), [503, 'key_unknown']);
        assert.match(answer.json.error.message, /Nothing was stored/);
      }
      assert.deepEqual(
        refusal(await send('stripe', stripe.token, body, null, {}, to)),
        UNAUTHORIZED,
        'no signature is the sender’s own mistake',
      );
      if (environment.WEBHOOK_SECRET === undefined)
        assert.deepEqual(
          refusal(await send('notion', token, { verification_token: 'secret_y' }, null, {}, to)),
          [503, 'key_unknown'],
        );
    });
    assert.ok(errors().length >= 4);
    assertStatus(
      await send(
        'stripe',
        stripe.token,
        { id: `evt_${randomUUID()}`, type: 'x' },
        SIGNING_SECRETS.stripe,
      ),
      200,
      'the service with the right secret still accepts events',
    );
  });
}

test('the start does not mention secrets that have expired or belong to a revoked token', async (t) => {
  const before = `${WEBHOOK_SECRET}-of-before`;
  const one = await addToken(database, 'github', SIGNING_SECRETS.github, before);
  const other = await addToken(database, 'github', SIGNING_SECRETS.github, before);
  await sql`update webhook.tokens set revoked_at = now() where id = ${one.id}`;
  await sql`update webhook.signing_secrets set expires_at = now() where token_id = ${other.id}`;
  const again = await startGatehouse(t, ['webhook'], databaseUrl, { WEBHOOK_SECRET });
  assert.deepEqual(
    again.log().filter(({ level }) => level === 'error'),
    [],
  );
});

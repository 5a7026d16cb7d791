/** Each source over real sockets: names, delivery ids, signatures and rejections. */
import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { SOURCES as ROWS } from '../../../src/webhook/sources.ts';
import { type Answer, ask, WEBHOOK_TOKEN, assertStatus } from '../../support/gatehouse.ts';
import {
  addToken,
  now,
  type Sample,
  SAMPLES,
  signatureOf,
  SIGNED_SOURCES,
  signedBy,
  type SignedSource,
  SIGNING_SECRETS,
  WITHOUT_TIME,
} from '../../support/senders.ts';
import { launchWebhook } from '../../support/webhook.ts';

const gatehouse = await launchWebhook();
const { sql, base, database } = gatehouse;

const counts = async () => ({
  ...(
    await sql`select (select count(*)::int from webhook.events) as events, (select count(*)::int
      from webhook.signing_secrets) as secrets`
  )[0],
});
const stored = async (id: string) => ({
  ...(
    await sql`select source, event, delivery_id, headers, ip, body, token_id from webhook.events where id = ${id}`
  )[0],
});
const lines = (message: string) => gatehouse.log().filter((line) => line.message === message);

/** Without delivery ids, which a digest replaces. They have tests of their own. */
const SOURCES = SIGNED_SOURCES.filter((source) => !['discord', 'asana'].includes(source));
/** Sources that name the event in a header, which these are without. */
const withoutName = ({ headers, event }: Sample) =>
  Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== event));

const tokens = new Map<SignedSource, { id: string; token: string }>();
for (const source of SIGNED_SOURCES) tokens.set(source, await addToken(database, source));
const tokenOf = (source: SignedSource) => tokens.get(source) ?? { id: '', token: '' };

/** Sends a sample with a valid signature, unless `more` changes it. */
async function send(
  source: SignedSource,
  sample: Sample,
  more: {
    text?: string;
    signed?: string;
    secret?: string;
    at?: number;
    headers?: Record<string, string>;
  } = {},
): Promise<Answer> {
  const { token } = tokenOf(source);
  const body = more.text ?? JSON.stringify(sample.body);
  const signature = signatureOf(
    source,
    more.secret ?? SIGNING_SECRETS[source],
    more.signed ?? body,
    {
      id: sample.deliveryId,
      at: more.at ?? now(),
    },
  );
  return ask('POST', `${base}?token=${token}`, {
    body,
    headers: { ...sample.headers, ...signature, ...more.headers },
  });
}

/** Asserts that the act stores nothing. */
async function storesNothing(act: () => Promise<void>): Promise<void> {
  const before = await counts();
  await act();
  assert.deepEqual(await counts(), before);
}

function assertRefused(answer: Answer, status: number, code: string): void {
  assert.deepEqual([answer.status, answer.json?.error?.code], [status, code], answer.text);
}

for (const source of SOURCES) {
  test(`${source}: an event is accepted with its own name and id, and repeated as a duplicate`, async () => {
    const sample = SAMPLES[source]();
    const text = JSON.stringify(sample.body, null, 1).replace('{', '{ \t');
    const answer = await send(source, sample, { text });
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(Object.keys(answer.json), ['id', 'status']);
    assert.equal(answer.json.status, 'accepted');
    const { headers: _, ip, body, ...row } = await stored(answer.json.id);
    assert.deepEqual(row, {
      source,
      event: sample.event,
      delivery_id: sample.deliveryId,
      token_id: tokenOf(source).id,
    });
    assert.equal(body.toString(), text);
    assert.equal(ip, '127.0.0.1');
    // With a new signature, as senders make for each attempt.
    const again = await send(source, sample, { text, at: now() - 1 });
    assert.deepEqual(
      [again.status, again.json],
      [200, { id: answer.json.id, status: 'duplicate' }],
    );
  });

  test(`${source}: a wrong, missing or stale signature is 401, and nothing is stored`, async () => {
    const sample = SAMPLES[source]();
    await storesNothing(async () => {
      assertRefused(
        await send(source, sample, { secret: `${SIGNING_SECRETS[source].slice(0, -4)}AAAA` }),
        401,
        'unauthorized',
      );
      assertRefused(
        await send(source, sample, { signed: JSON.stringify({ ...sample.body, more: 1 }) }),
        401,
        'unauthorized',
      );
      const { token } = tokenOf(source);
      const unsigned = await ask('POST', `${base}?token=${token}`, {
        body: sample.body,
        headers: sample.headers,
      });
      assertRefused(unsigned, 401, 'unauthorized');
      assert.match(
        unsigned.json.error.message,
        /^The request (lacks the header|has no signature of the expected form in the header) /,
      );
      if (!WITHOUT_TIME.includes(source)) {
        for (const at of [now() - 400, now() + 400]) {
          const stale = await send(source, sample, { at });
          assertRefused(stale, 401, 'unauthorized');
          assert.match(stale.json.error.message, /five minutes/);
        }
      }
    });
    assertStatus(await send(source, sample), 200, 'and the same, rightly signed, is taken');
  });

  test(`${source}: a token accepts only the signatures of its own secret`, async () => {
    const sample = SAMPLES[source]();
    const body = JSON.stringify(sample.body);
    const headers = {
      ...sample.headers,
      ...signedBy(source, body, { id: sample.deliveryId }),
    };
    await storesNothing(async () => {
      assertRefused(await ask('POST', base, { body, headers }), 401, 'unauthorized');
      assertRefused(
        await ask('POST', `${base}?token=wrong`, { body, headers }),
        401,
        'unauthorized',
      );
      const other = SOURCES[(SOURCES.indexOf(source) + 1) % SOURCES.length] ?? source;
      assertRefused(
        await ask('POST', `${base}?token=${tokenOf(other).token}`, { body, headers }),
        401,
        'unauthorized',
      );
    });
  });

  test(`${source}: the same delivery id with another body is a duplicate, with its SHA-256 in the log`, async () => {
    const sample = SAMPLES[source]();
    const first = await send(source, sample);
    assert.equal(first.status, 200, first.text);
    const text = JSON.stringify({ ...sample.body, more: 'CONFLICTING' });
    const before = lines('delivery id reused with another body').length;
    await storesNothing(async () => {
      const again = await send(source, sample, { text });
      assert.deepEqual(
        [again.status, again.json],
        [200, { id: first.json.id, status: 'duplicate' }],
      );
    });
    const line = lines('delivery id reused with another body')[before];
    assert.ok(line);
    const { level, token_id, delivery_id, event_id, body_sha256 } = line;
    assert.deepEqual(
      { level, token_id, delivery_id, event_id, body_sha256 },
      {
        level: 'warn',
        token_id: tokenOf(source).id,
        delivery_id: sample.deliveryId,
        event_id: first.json.id,
        body_sha256: createHash('sha256').update(text).digest('hex'),
      },
    );
    assert.equal((await stored(first.json.id)).body.toString(), JSON.stringify(sample.body));
    assert.ok(!gatehouse.stdout().includes('CONFLICTING'));
  });

  test(`${source}: a signed body that is not an event of this source is 400`, async () => {
    const sample = SAMPLES[source]();
    await storesNothing(async () => {
      for (const text of [
        '',
        '{"type":',
        '[]',
        'null',
        '"text"',
        '{}',
        JSON.stringify({ type: '' }),
        JSON.stringify({ type: 7, id: 'x' }),
        JSON.stringify({ type: 'a\0b' }),
        JSON.stringify({ type: 'x'.repeat(1_025) }),
      ]) {
        const headers = withoutName(sample);
        const answer = await send(source, { ...sample, headers }, { text });
        // Linear signs a time in the body, which is looked at first.
        const isUntimed = source === 'linear' && answer.status === 401;
        if (!isUntimed) assertRefused(answer, 400, 'invalid_body');
      }
    });
  });
}

test('with the same secret, GitLab and Standard Webhooks do not accept each other', async () => {
  for (const [source, other] of [
    ['gitlab', 'standard'],
    ['standard', 'gitlab'],
  ] as const) {
    const secret = SIGNING_SECRETS[source];
    const sample = SAMPLES[source]();
    const body = JSON.stringify(sample.body);
    const signature = signatureOf(source, secret, body, { id: sample.deliveryId });
    const { token } = await addToken(database, other, secret);
    const headers = { ...sample.headers, ...signature };
    assertRefused(
      await ask('POST', `${base}?token=${token}`, { body, headers }),
      400,
      'invalid_body',
    );
  }
});

test('linear: a signed body without a time, or with an old one, is 401', async () => {
  const sample = SAMPLES.linear();
  for (const webhookTimestamp of [Date.now() - 28_805_000, Date.now() + 305_000, 'now', null]) {
    const body = { ...sample.body, webhookTimestamp };
    await storesNothing(async () =>
      assertRefused(await send('linear', { ...sample, body }), 401, 'unauthorized'),
    );
  }
});

test('discord: an event and a PING get 204 without a body; only the event is stored', async () => {
  const sample = SAMPLES.discord();
  const before = await counts();
  const answer = await send('discord', sample);
  assert.deepEqual([answer.status, answer.text], [204, '']);
  assert.equal(answer.headers.get('content-type'), 'application/json; charset=utf-8');
  const [row] = await sql`select event, body from webhook.events where source = 'discord'`;
  assert.deepEqual(
    [row?.event, row?.body.toString()],
    ['ENTITLEMENT_CREATE', JSON.stringify(sample.body)],
  );
  const body = { version: 1, application_id: '1', type: 0 };
  const ping = await send('discord', { ...sample, body });
  assert.deepEqual([ping.status, ping.text], [204, '']);
  assert.deepEqual(await counts(), { ...before, events: Number(before.events) + 1 });
  const { scheme } = ROWS.discord;
  for (const headers of [
    { [scheme.header]: 'a'.repeat(128) },
    { [scheme.header]: '' },
    { [scheme.time]: String(now() - 1) },
  ])
    await storesNothing(async () =>
      assertRefused(await send('discord', { ...sample, body }, { headers }), 401, 'unauthorized'),
    );
});

test('only safe headers are stored: no credential and no signature', async () => {
  const github = SAMPLES.github();
  const more = {
    authorization: 'Basic c2VjcmV0',
    cookie: 'session=x',
    'x-api-key': 'k',
    'x-hub-signature': 'sha1=0',
    'proxy-authorization': 'x',
    'x-forwarded-for': '192.0.2.1',
    'user-agent': 'GitHub-Hookshot/1',
    'x-github-hook-id': '42',
    'x-github-token': 'x',
    'x-request-id': 'one',
    'webhook-signature': 'v1,x',
    'stripe-signature': 't=1',
  };
  const { json } = await send('github', github, { headers: more });
  assert.deepEqual((await stored(json.id)).headers, {
    'content-type': 'application/json',
    'user-agent': 'GitHub-Hookshot/1',
    'x-github-delivery': github.deliveryId,
    'x-github-event': 'issues',
    'x-github-hook-id': '42',
    'x-request-id': 'one',
  });
  const at = now();
  const standard = SAMPLES.standard();
  const one = await send('standard', standard, {
    at,
    headers: { 'user-agent': 'x'.repeat(2_000), 'x-request-id': 'two' },
  });
  assert.deepEqual((await stored(one.json.id)).headers, {
    'content-type': 'application/json',
    'user-agent': 'x'.repeat(1_024),
    'x-request-id': 'two',
    'webhook-id': standard.deliveryId,
    'webhook-timestamp': String(at),
  });
  const slack = await send('slack', SAMPLES.slack(), {
    headers: {
      'user-agent': 'Slackbot',
      'x-request-id': 'three',
      'x-slack-retry-num': '1',
      'x-slack-retry-reason': 'http_timeout',
    },
  });
  assert.deepEqual((await stored(slack.json.id)).headers, {
    'content-type': 'application/json',
    'user-agent': 'Slackbot',
    'x-request-id': 'three',
    'x-slack-retry-num': '1',
    'x-slack-retry-reason': 'http_timeout',
  });
});

test('a delivery id in the body must be visible ASCII, and may be missing', async () => {
  for (const id of ['', 'a b', 'é', 'x'.repeat(256), 7.5, null, {}]) {
    for (const source of ['stripe', 'notion'] as const) {
      const sample = SAMPLES[source]();
      await storesNothing(async () =>
        assertRefused(
          await send(source, { ...sample, body: { ...sample.body, id } }),
          400,
          'invalid_body',
        ),
      );
    }
  }
  const sample = SAMPLES.stripe();
  const inBody = { ...sample, body: { ...sample.body, id: 'a b' } };
  const alike = await send('stripe', inBody, { headers: { 'x-request-id': 'a b' } });
  assertRefused(alike, 400, 'invalid_body');
  const { event_id: _, ...body } = SAMPLES.slack().body;
  const answer = await send('slack', { ...SAMPLES.slack(), body });
  assert.equal((await stored(answer.json.id)).delivery_id, null);
});

test("slack: without an inner event the body's own type is the name", async () => {
  const { json } = await send('slack', {
    ...SAMPLES.slack(),
    body: { type: 'app_rate_limited', minute_rate_limited: 1 },
  });
  assert.equal((await stored(json.id)).event, 'app_rate_limited');
});

test('standard: Svix header names are accepted', async () => {
  const sample = SAMPLES.standard();
  const body = JSON.stringify(sample.body);
  const signed = Object.entries(signedBy('standard', body, { id: sample.deliveryId })).map(
    ([name, value]) => [name.replace('webhook', 'svix'), value] as const,
  );
  const { json } = await ask('POST', base, {
    bearer: tokenOf('standard').token,
    body,
    headers: Object.fromEntries(signed),
  });
  const row = await stored(json.id);
  assert.equal(row.delivery_id, sample.deliveryId);
  assert.deepEqual(
    Object.keys(Object(row.headers)).filter((name) => name.startsWith('svix')),
    ['svix-id', 'svix-timestamp'],
  );
});

test('generic: no signature is required, and fields of other sources have no effect', async () => {
  const event = { event: 'page.updated', data: { page_id: 'p' }, type: 'other', id: 'evt_1' };
  const headers = {
    ...signatureOf('github', 'wrong', ''),
    'x-github-event': 'ping',
    'x-github-delivery': randomUUID(),
  };
  const { status, json } = await ask('POST', base, { bearer: WEBHOOK_TOKEN, body: event, headers });
  assert.equal(status, 200);
  assert.deepEqual([Object.keys(json), json.status], [['id', 'status'], 'accepted']);
  const row = await stored(json.id);
  assert.deepEqual([row.source, row.event, row.delivery_id], ['generic', 'page.updated', null]);
});

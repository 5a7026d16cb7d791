/**
 * Wrong credentials are limited by network on every service, without the database and without
 * locking out others.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after } from 'node:test';
import { revokeToken } from '../../src/platform/db/tokens.ts';
import { createToken, rotateToken } from '../support/tokens.ts';
import { stopClock } from '../support/clock.ts';
import { createDatabase } from '../support/database.ts';
import {
  type Answer,
  ask,
  AUTH_TOKEN,
  logIn,
  startGatehouse,
  WEBHOOK_TOKEN,
  assertStatus,
} from '../support/gatehouse.ts';
import {
  addToken,
  openWebhook,
  signatureOf,
  signedBy,
  WEBHOOK_SECRET,
} from '../support/senders.ts';
import { test } from '../support/until.ts';

const { url: databaseUrl, sql } = await createDatabase();
const proxied = { TRUSTED_PROXIES: '127.0.0.1' };
const { url } = await startGatehouse({ after }, ['identity', 'secrets', 'webhook'], databaseUrl, {
  ...proxied,
  WEBHOOK_SECRET,
});
const plain = await startGatehouse({ after }, ['webhook'], undefined, {
  ...proxied,
  WEBHOOK_VARIANT: 'plain',
});
const session = await logIn(url.identity);
const operator = { name: 'reader', role: 'operator', source: 'generic' } as const;
const database = openWebhook({ after }, databaseUrl);
const githubToken = await addToken(database, 'github');
const reading = await createToken(database, operator, null);
const event = { event: 'x', data: { page_id: 'p' } };

type Send = (credential: string, from: string) => Promise<Answer>;
const bearer =
  (method: string, path: string, body?: unknown): Send =>
  (credential, from) =>
    ask(method, path, { bearer: credential, body, headers: { 'x-forwarded-for': from } });
const keyMade = await ask('POST', `${url.identity}/api/key/`, {
  bearer: session,
  body: { name: 'k' },
});
const sessions = bearer('GET', `${url.identity}/api/test/`);
const secrets = bearer('GET', `${url.secrets}/api/store/options`);

const CHECKS: ReadonlyArray<
  readonly [what: string, send: Send, wrong: () => string, right: string]
> = [
  ['a session token', sessions, () => `session:${randomUUID()}`, session],
  [
    'a session token as cookie',
    (credential, from) =>
      ask('GET', `${url.identity}/api/auth/verify`, {
        headers: { cookie: `session=${credential}`, 'x-forwarded-for': from },
      }),
    () => `session:${randomUUID()}`,
    session,
  ],
  ['a malformed bearer token of identity', sessions, () => 'session:guess', session],
  [
    'an API key',
    (credential, from) =>
      ask('GET', `${url.identity}/api/test/`, {
        headers: { 'x-api-key': credential, 'x-forwarded-for': from },
      }),
    () => `key:${randomUUID()}`,
    String(keyMade.json.data.key),
  ],
  ['AUTH_TOKEN', secrets, () => `guess-${randomUUID()}`, AUTH_TOKEN],
  [
    'a webhook token',
    bearer('POST', `${url.webhook}/webhook`, event),
    () => `guess-${randomUUID()}`,
    WEBHOOK_TOKEN,
  ],
  [
    'a webhook token in the query',
    (credential, from) =>
      ask('POST', `${url.webhook}/webhook?token=${credential}`, {
        body: event,
        headers: { 'x-forwarded-for': from },
      }),
    () => `guess-${randomUUID()}`,
    WEBHOOK_TOKEN,
  ],
  [
    "an operator's token",
    bearer('GET', `${url.webhook}/events`),
    () => `guess-${randomUUID()}`,
    reading.token,
  ],
  [
    'WEBHOOK_TOKEN of the plain variant',
    bearer('POST', `${plain.url.webhook}/webhook`, event),
    () => 'g',
    WEBHOOK_TOKEN,
  ],
];

let networks = 0;
/** An address of a network that has sent nothing yet. */
const newAddress = () => {
  networks += 1;
  return `198.51.100.${networks}`;
};

/** So many requests at once. */
const times = (count: number, act: () => Promise<Answer>): Promise<Answer[]> =>
  Promise.all(Array.from({ length: count }, act));

/**
 * Sends wrong credentials until one is rejected unchecked.
 * @returns how many were checked, and that reply
 */
async function guess(
  send: Send,
  wrong: () => string,
  from: string,
): Promise<{ checked: number; rejected: Answer }> {
  // Many at once. The others in turn, because it counts which is the last one.
  const early = await times(80, () => send(wrong(), from));
  for (const { status, text } of early) assert.equal(status, 401, text);
  for (let checked = early.length; ; checked += 1) {
    const answer = await send(wrong(), from);
    if (answer.status === 429) return { checked, rejected: answer };
    assert.equal(answer.status, 401, answer.text);
    assert.ok(checked < 1_000, 'a thousand guesses of one network were checked');
  }
}

for (const [what, send, wrong, right] of CHECKS) {
  test(`${what}: wrong ones are limited by network, the right one of a known client passes`, async (t) => {
    stopClock(t);
    const from = newAddress();
    const elsewhere = newAddress();
    assert.equal((await send(right, from)).status, 200, 'from now on this network has a client');
    const { checked, rejected } = await guess(send, wrong, from);
    assert.equal(checked, 100);
    assert.equal(rejected.json.error.code, 'too_many_requests');
    assert.equal(rejected.headers.get('retry-after'), '1');
    assertStatus(
      await send(right, from),
      200,
      'a client that has succeeded before is not locked out',
    );
    assert.equal((await send(right, elsewhere)).status, 200, 'another network is not concerned');
    assert.equal((await send(wrong(), elsewhere)).status, 401);
  });
}

const BY_TOKEN: ReadonlyArray<readonly [what: string, wrongStatus: number, send: Send]> = [
  [
    'POST /api/auth/session',
    401,
    (token, from) =>
      ask('POST', `${url.identity}/api/auth/session`, {
        body: { session: token },
        headers: { 'x-forwarded-for': from },
      }),
  ],
  [
    'POST /api/auth/logout',
    200,
    (token, from) =>
      ask('POST', `${url.identity}/api/auth/logout`, {
        body: { session: token },
        headers: { 'x-forwarded-for': from },
      }),
  ],
  [
    'GET /api/session/info',
    400,
    (token, from) =>
      bearer('GET', `${url.identity}/api/session/info?session=${token}`)(session, from),
  ],
  [
    'DELETE /api/session/revoke',
    400,
    (token, from) =>
      bearer('DELETE', `${url.identity}/api/session/revoke?session=${token}`)(session, from),
  ],
];

for (const [what, wrongStatus, send] of BY_TOKEN) {
  test(`the session token of ${what}: wrong ones are limited by network, and a right one passes`, async (t) => {
    stopClock(t);
    const from = newAddress();
    const own = await logIn(url.identity);
    const other = await logIn(url.identity);
    // Uses of both, by which this network knows them, and the caller of the routes that need one.
    for (const token of [session, own]) assert.equal((await sessions(token, from)).status, 200);
    const wrong = await times(100, () => send(`session:${randomUUID()}`, from));
    for (const { status } of wrong) assert.equal(status, wrongStatus);
    const rejected = await send(`session:${randomUUID()}`, from);
    assert.deepEqual(
      [rejected.status, rejected.json.error?.code, rejected.headers.get('retry-after')],
      [429, 'too_many_requests', '1'],
    );
    assert.equal((await send(other, from)).status, 429, 'one that this network has not used');
    assert.equal((await sessions(other, newAddress())).status, 200, 'and nothing was done to it');
    assertStatus(await sessions(`session:${randomUUID()}`, from), 429, 'one count for all');
    assert.equal((await send(own, from)).status, 200, 'a client that has succeeded before');
    assert.equal((await send(`session:${randomUUID()}`, newAddress())).status, wrongStatus);
  });
}

test('the right credential is not compared for a guessing network until the wait is over', async (t) => {
  const pass = stopClock(t);
  const from = newAddress();
  await guess(secrets, () => 'guess', from);
  const unchecked = await secrets(AUTH_TOKEN, from);
  assert.deepEqual([unchecked.status, unchecked.json.error?.code], [429, 'too_many_requests']);
  pass(Number(unchecked.headers.get('retry-after')));
  assert.equal((await secrets(AUTH_TOKEN, from)).status, 200);
});

test('credentials of other programs are no guesses at those of identity', async (t) => {
  stopClock(t);
  const from = newAddress();
  const asKey = CHECKS.find(([what]) => what === 'an API key')?.[1] ?? sessions;
  for (const send of [
    () => sessions('eyJhbGciOiJub25lIn0.e30.', from),
    () => asKey('sk_live_51', from),
  ])
    for (const { status } of await times(150, send)) assert.equal(status, 401);
  assert.equal((await sessions(session, from)).status, 200);
});

test('wrong signatures are limited by network, right ones pass', async (t) => {
  stopClock(t);
  const body = '{"action":"opened"}';
  const signed = signedBy('github', body);
  const forged = signatureOf('github', 'another-secret', body);
  const post = (from: string, signature: Record<string, string>) =>
    ask('POST', `${url.webhook}/webhook`, {
      bearer: githubToken.token,
      body,
      headers: {
        'x-github-event': 'issues',
        'x-github-delivery': randomUUID(),
        'x-forwarded-for': from,
        ...signature,
      },
    });
  const from = newAddress();
  const { checked } = await guess(
    () => post(from, forged),
    () => '',
    from,
  );
  assert.equal(checked, 100);
  assert.equal((await post(from, signed)).status, 200, 'a neighbor does not stop a sender');
  const read = bearer('GET', `${url.webhook}/events`);
  assert.equal((await read(reading.token, from)).status, 429, 'other credentials are limited, too');
  assert.equal((await read(reading.token, newAddress())).status, 200);
});

test('simultaneous guesses stay within the limit; right credentials beside them are accepted', async (t) => {
  stopClock(t);
  const from = newAddress();
  const tokens = await Promise.all(
    Array.from({ length: 150 }, async () => {
      const sender = { name: 'one of many', role: 'sender', source: 'generic' } as const;
      return (await createToken(database, sender, null)).token;
    }),
  );
  const send = bearer('POST', `${url.webhook}/webhook`, event);
  const right = await Promise.all(tokens.map((token) => send(token, from)));
  assert.deepEqual([...new Set(right.map(({ status }) => status))], [200]);
  // A network that has sent no wrong credential for a while is not limited at once.
  for (let sent = 0; sent < 30; sent += 1) await send('guess', from);
  const wrong = await Promise.all(
    Array.from({ length: 400 }, (_, number) => send(`guess-${number}`, from)),
  );
  const checked = wrong.filter(({ status }) => status === 401).length;
  assert.equal(checked, 70);
});

test('an IPv6 network is a /64', async (t) => {
  stopClock(t);
  await guess(secrets, () => 'guess', '2001:db8:0:1::1');
  assert.equal((await secrets('guess', '2001:db8:0:1:ffff::2')).status, 429);
  assert.equal((await secrets('guess', '2001:db8:0:2::1')).status, 401);
});

test('a rejected guess is not looked up, and no guess is written', async (t) => {
  stopClock(t);
  const from = newAddress();
  await guess(sessions, () => `session:${randomUUID()}`, from);
  await sql.begin(async (tx) => {
    // Whoever looks up waits.
    await tx`lock table identity.sessions in access exclusive mode`;
    assert.equal((await sessions(`session:${randomUUID()}`, from)).status, 429);
  });
  const rows = await sql`select from identity.throttles union all select from secrets.throttles`;
  assert.equal(rows.filter(() => true).length, 1, 'only that of the login above');
  assert.equal((await sql`select from identity.audit where event like '%failed'`).length, 0);
});

test('a check that fails with the database is no guess', async () => {
  const from = newAddress();
  assert.equal((await sessions(`session:${randomUUID()}`, from)).status, 401);
  await sql`alter table identity.sessions rename to gone`;
  const answers = await times(150, () => sessions(`session:${randomUUID()}`, from));
  for (let sent = 0; sent < 150; sent += 1)
    answers.push(await sessions(`session:${randomUUID()}`, from));
  await sql`alter table identity.gone rename to sessions`;
  // Together, more than the attempts that are left; one after the other, all of them are looked up.
  assert.deepEqual([...new Set(answers.slice(150).map(({ status }) => status))], [500]);
  assert.equal((await sessions(session, from)).status, 200);
});

test('a missing credential, an ended session and the cookie of another program are no guesses', async () => {
  const from = newAddress();
  const ended = await logIn(url.identity);
  assertStatus(
    await ask('DELETE', `${url.identity}/api/session/revoke?session=${ended}`, {
      bearer: session,
    }),
    200,
  );
  for (const headers of [
    {},
    { cookie: `session=${ended}` },
    { cookie: 'session=eyJmbGFzayI6MX0.Zx.y' },
  ]) {
    const verify = () =>
      ask('GET', `${url.identity}/api/auth/verify`, {
        headers: { ...headers, 'x-forwarded-for': from },
      });
    for (const { status, text } of await times(120, verify)) assert.equal(status, 401, text);
  }
  assert.equal((await sessions(session, from)).status, 200);
});

test('a revoked webhook token and a replaced one are no guesses', async () => {
  const from = newAddress();
  const sender = { name: 'ended', role: 'sender', source: 'generic' } as const;
  const revoked = await createToken(database, sender, null);
  const replaced = await createToken(database, sender, null);
  assert.ok(await revokeToken(database, 'webhook', revoked.id));
  assert.ok(await rotateToken(database, replaced.id, 0));
  const send = bearer('POST', `${url.webhook}/webhook`, event);
  for (const { token } of [revoked, replaced])
    for (const { status } of await times(120, () => send(token, from))) assert.equal(status, 401);
  assert.equal((await send(WEBHOOK_TOKEN, from)).status, 200);
});

test('rejected guesses are counted in the metrics by reason', async () => {
  const { text } = await ask('GET', `${url.metrics}/metrics`);
  for (const [service, route] of [
    ['identity', 'GET /api/test'],
    ['secrets', 'GET /api/store/options'],
    ['webhook', 'POST /webhook'],
  ]) {
    const series = `gatehouse_requests_refused_total{service="${service}",route="${route}`;
    const found = text
      .split('\n')
      .find((line) => line.startsWith(series) && line.includes('reason="too_many_requests"'));
    assert.match(found ?? '', / [1-9][0-9]*$/, `${service}\n${text}`);
  }
});

test('each network that sends a cached webhook token is known to have a client', async (t) => {
  const pass = stopClock(t);
  const [, send, wrong, right] =
    CHECKS.find(([what]) => what === 'a webhook token') ?? assert.fail();
  const from = newAddress();
  for (const network of [newAddress(), from])
    assert.equal((await send(right, network)).status, 200);
  // Longer than the token is cached.
  pass(6);
  await guess(send, wrong, from);
  assert.equal((await send(right, from)).status, 200);
});

/**
 * Wrong credentials are limited by network on every service, without the database and without
 * locking out others.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after } from 'node:test';
import { revokeToken } from '../../src/platform/db/tokens.ts';
import { callsOf } from '../support/calls.ts';
import { stopClock } from '../support/clock.ts';
import {
  type Answer,
  AUTH_TOKEN,
  launch,
  logIn,
  startGatehouse,
  WEBHOOK_TOKEN,
} from '../support/gatehouse.ts';
import {
  addToken,
  openWebhook,
  signatureOf,
  signedBy,
  WEBHOOK_SECRET,
} from '../support/senders.ts';
import { createToken, rotateToken } from '../support/tokens.ts';
import { test } from '../support/until.ts';

const PROXIED = { TRUSTED_PROXIES: '127.0.0.1' };
const { identity, databaseUrl, sql, listenerOf } = await launch(
  ['identity', 'secrets', 'webhook'],
  { ...PROXIED, WEBHOOK_SECRET },
);
const plain = await startGatehouse({ after }, ['webhook'], undefined, {
  ...PROXIED,
  WEBHOOK_VARIANT: 'plain',
});
const SERVICES = {
  identity: callsOf(listenerOf('identity')),
  secrets: callsOf(listenerOf('secrets')),
  webhook: callsOf(listenerOf('webhook')),
  plain: callsOf(plain.listenerOf('webhook')),
};
type Service = keyof typeof SERVICES;
const session = await logIn(identity);
const made = await SERVICES.identity('POST', '/api/key/', { bearer: session, body: {} });
const database = openWebhook({ after }, databaseUrl);
const { token: githubToken } = await addToken(database, 'github');
const operator = { name: 'reader', role: 'operator', source: 'generic' } as const;
const { token: operatorToken } = await createToken(database, operator, null);
const sender = { name: 'sender', role: 'sender', source: 'generic' } as const;

type Send = (credential: string, from: string) => Promise<Answer>;
const EVENT = { event: 'x', data: { page_id: 'p' } };

type HeadersOf = (credential: string) => Record<string, string>;
type BodyOf = (credential: string) => unknown;
/** A request from an address. `{}` in the path, or a header, is the credential. */
const sending =
  (service: Service, request: string, headersOf: HeadersOf, bodyOf?: BodyOf): Send =>
  (credential, from) => {
    const [method = '', path = ''] = request.replace('{}', credential).split(' ');
    return SERVICES[service](method, path, {
      headers: { ...headersOf(credential), 'x-forwarded-for': from },
      ...(bodyOf ? { body: bodyOf(credential) } : {}),
    });
  };
const bearer = (credential: string) => ({ authorization: `Bearer ${credential}` });
const asAdmin = () => bearer(session);
const none = () => ({});
const asBody = (credential: string) => ({ session: credential });

const sessions = sending('identity', 'GET /api/test/', bearer);
const byKey = sending('identity', 'GET /api/test/', (key) => ({ 'x-api-key': key }));
const byCookie = sending('identity', 'GET /api/auth/verify', (credential) => ({
  cookie: `session=${credential}`,
}));
const secrets = sending('secrets', 'GET /api/store/options', bearer);
const events = sending('webhook', 'POST /webhook', bearer, () => EVENT);
const lists = sending('webhook', 'GET /events', bearer);
const inQuery = sending('webhook', 'POST /webhook?token={}', none, () => EVENT);
const plainEvents = sending('plain', 'POST /webhook', bearer, () => EVENT);
const BODY = '{"action":"opened"}';
const signed: Send = (secret, from) =>
  SERVICES.webhook('POST', '/webhook', {
    bearer: githubToken,
    body: BODY,
    headers: {
      'x-github-event': 'issues',
      'x-github-delivery': randomUUID(),
      'x-forwarded-for': from,
      ...(secret === ''
        ? signedBy('github', BODY)
        : signatureOf('github', `${secret}-another`, BODY)),
    },
  });

const anySession = () => `session:${randomUUID()}`;
const anyToken = () => `guess-${randomUUID()}`;

/** `refusal`: of a wrong one, while it is checked. */
type Check = readonly [
  what: string,
  send: Send,
  wrong: () => string,
  right: () => Promise<string> | string,
  refusal?: number,
];
const another = () => logIn(identity);
/** A request about a session, which need not be that of its caller. */
const about = (request: string, refusal: number, headersOf: HeadersOf, bodyOf?: BodyOf): Check => [
  request,
  sending('identity', request, headersOf, bodyOf),
  anySession,
  another,
  refusal,
];
const CHECKS: Readonly<Record<Service, readonly Check[]>> = {
  identity: [
    ['a session token', sessions, anySession, () => session],
    ['a session token as cookie', byCookie, anySession, () => session],
    ['a malformed session token', sessions, () => 'session:guess', () => session],
    ['an API key', byKey, () => `key:${randomUUID()}`, () => String(made.json.data.key)],
    about('POST /api/auth/session', 401, none, asBody),
    about('POST /api/auth/logout', 200, none, asBody),
    about('GET /api/session/info?session={}', 400, asAdmin),
    about('DELETE /api/session/revoke?session={}', 400, asAdmin),
  ],
  secrets: [['AUTH_TOKEN', secrets, anyToken, () => AUTH_TOKEN]],
  webhook: [
    ['a token', events, anyToken, () => WEBHOOK_TOKEN],
    ['a token in the query', inQuery, anyToken, () => WEBHOOK_TOKEN],
    ["an operator's token", lists, anyToken, () => operatorToken],
    ['a signature', signed, anyToken, () => ''],
  ],
  plain: [['WEBHOOK_TOKEN', plainEvents, () => 'g', () => WEBHOOK_TOKEN]],
};

/** How long the token of a sender is cached. A network may send one more guess in each second. */
const CACHE_SECONDS = 5;

let networks = 0;
/** An address of a network that has sent nothing yet. */
const newAddress = () => {
  networks += 1;
  return `198.51.100.${networks}`;
};

/** As many wrong credentials, of all kinds in turn, as a network may send. */
async function exhaust(checks: readonly Check[], from: string) {
  for (let sent = 0; sent < 100; sent += 1) {
    const [what, send, wrong, , refusal = 401] = checks[sent % checks.length] ?? assert.fail();
    const { status, text } = await send(wrong(), from);
    assert.equal(status, refusal, `${what}, ${sent}: ${text}`);
  }
}

/** What is no guess, so that as many guesses are left afterwards. */
const NO_GUESSES: Readonly<Record<Service, (from: string) => Promise<Answer[]>>> = {
  identity: async (from) => {
    const ended = await another();
    await SERVICES.identity('DELETE', `/api/session/revoke?session=${ended}`, { bearer: session });
    return [
      await SERVICES.identity('GET', '/api/auth/verify', { headers: { 'x-forwarded-for': from } }),
      await byCookie(ended, from),
      await byCookie('eyJmbGFzayI6MX0.Zx.y', from),
      await sessions('eyJhbGciOiJub25lIn0.e30.', from),
      await byKey('sk_live_51', from),
    ];
  },
  webhook: async (from) => {
    const revoked = await createToken(database, sender, null);
    const replaced = await createToken(database, sender, null);
    assert.ok(await revokeToken(database, 'webhook', revoked.id));
    assert.ok(await rotateToken(database, replaced.id, 0));
    return [
      await events(revoked.token, from),
      await events(replaced.token, from),
      await inQuery('', from),
    ];
  },
  secrets: async () => [],
  plain: async () => [],
};

for (const [service, checks] of Object.entries(CHECKS)) {
  test(`${service}: a network's wrong credentials are limited together, known ones pass`, async (t) => {
    const pass = stopClock(t);
    const from = newAddress();
    const known = await Promise.all(
      checks.map(async (check) => [check, await check[3]()] as const),
    );
    // By these uses, this network has clients, as has each that sends a cached token.
    for (const network of [newAddress(), from]) {
      for (const [[what, send], right] of known.filter(([, one]) => one !== ''))
        if (!/^(POST|GET|DELETE) /.test(what))
          assert.equal((await send(right, network)).status, 200);
    }
    for (const [[what], right] of known)
      if (/^(POST|GET|DELETE) /.test(what)) assert.equal((await sessions(right, from)).status, 200);
    for (const { status } of await NO_GUESSES[service as Service](from)) assert.equal(status, 401);
    await exhaust(checks, from);
    for (const [what, send, wrong, right] of checks) {
      const rejected = await send(wrong(), from);
      assert.deepEqual(
        [rejected.status, rejected.json.error?.code, rejected.headers.get('retry-after')],
        [429, 'too_many_requests', '1'],
        what,
      );
      // One that this network has not used is not checked, and another network is not concerned.
      if (right === another) assert.equal((await send(await another(), from)).status, 429, what);
      assert.notEqual((await send(wrong(), newAddress())).status, 429, what);
    }
    // No token is cached any more, and no guess is left.
    pass(CACHE_SECONDS);
    const [[, guess, wrong] = assert.fail()] = checks;
    for (let sent = 0; sent < CACHE_SECONDS; sent += 1) await guess(wrong(), from);
    assert.equal((await guess(wrong(), from)).status, 429);
    for (const [[what, send], right] of known)
      assert.equal((await send(right, from)).status, 200, what);
  });
}

test('the right credential is not compared for a guessing network until the wait is over', async (t) => {
  const pass = stopClock(t);
  // An IPv6 network is a /64.
  const from = '2001:db8:0:1::1';
  await exhaust(CHECKS.secrets, from);
  const unchecked = await secrets(AUTH_TOKEN, '2001:db8:0:1:ffff::2');
  assert.deepEqual([unchecked.status, unchecked.json.error?.code], [429, 'too_many_requests']);
  assert.equal((await secrets('guess', '2001:db8:0:2::1')).status, 401);
  pass(Number(unchecked.headers.get('retry-after')));
  assert.equal((await secrets(AUTH_TOKEN, from)).status, 200);
});

test('a rejected guess is not looked up, none is written, and a failed check is none', async (t) => {
  stopClock(t);
  const from = newAddress();
  assert.equal((await sessions(anySession(), from)).status, 401);
  await sql`alter table identity.sessions rename to gone`;
  for (let sent = 0; sent < 3; sent += 1)
    assert.equal((await sessions(anySession(), from)).status, 500);
  await sql`alter table identity.gone rename to sessions`;
  for (let sent = 1; sent < 100; sent += 1)
    assert.equal((await sessions(anySession(), from)).status, 401, String(sent));
  await sql.begin(async (tx) => {
    // Whoever looks up waits.
    await tx`lock table identity.sessions in access exclusive mode`;
    assert.equal((await sessions(anySession(), from)).status, 429);
  });
  const rows = await sql`select from identity.throttles where attempts > 0
    union all select from secrets.throttles`;
  assert.equal(rows.length, 0);
  assert.equal((await sql`select from identity.audit where event like '%failed'`).length, 0);
});

test('simultaneous guesses stay within the limit; right credentials beside them are accepted', async (t) => {
  stopClock(t);
  const from = newAddress();
  const tokens = await Promise.all(
    Array.from({ length: 101 }, async () => (await createToken(database, sender, null)).token),
  );
  const right = await Promise.all(tokens.map((token) => events(token, from)));
  assert.deepEqual([...new Set(right.map(({ status }) => status))], [200]);
  // A network that has sent no wrong credential for a while is not limited at once.
  for (let sent = 0; sent < 30; sent += 1) await events('guess', from);
  const wrong = await Promise.all(
    Array.from({ length: 100 }, (_, number) => events(`guess-${number}`, from)),
  );
  assert.equal(wrong.filter(({ status }) => status === 401).length, 70);
});

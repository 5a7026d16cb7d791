/**
 * Each request is answered within a set time, whatever the database does. If it answers, but not
 * with what was asked for, identity says 500, never 401, and never pretends success. Without a
 * database: `test/api/contract/failures.test.ts`.
 */
import assert from 'node:assert/strict';
import { BlockList } from 'node:net';
import { test } from 'node:test';
import {
  ADMIN_PASSWORD,
  ask,
  AUTH_TOKEN,
  launch,
  logIn,
  startGatehouse,
  WEBHOOK_TOKEN,
} from '../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN } from '../support/inbox.ts';
import { get, startListener } from '../support/listener.ts';
import { meanwhile } from '../support/meanwhile.ts';
import { startProxy } from '../support/proxy.ts';
import { connectTo, headOf } from '../support/socket.ts';
import { latch, until } from '../support/until.ts';
import { assertError, isOpen } from '../support/users.ts';

const { identity, secrets, webhook, sql, databaseUrl, log } = await launch([
  'identity',
  'secrets',
  'webhook',
]);
await addOperator(sql);
const LISTS = [
  ['identity.audit', `${identity}/api/audit/`, await logIn(identity)],
  ['secrets.secrets', `${secrets}/api/store`, AUTH_TOKEN],
  ['webhook.events', `${webhook}/events`, OPERATOR_TOKEN],
] as const;

test('all three services answer while the database sends nothing', async (t) => {
  // Of the others, which have time to log in on a slow machine.
  const proxy = await startProxy(t, databaseUrl);
  const services = ['identity', 'secrets', 'webhook'] as const;
  const { url } = await startGatehouse(t, services, proxy.url, {}, 'ready', 500);
  proxy.stall('replies');
  const event = { event: 'made', data: { page_id: 'p' } };
  const login = { username: 'admin', password: 'wrong' };
  const answers = await Promise.all([
    ask('POST', `${url.identity}/api/auth/login`, { body: login }),
    ask('GET', `${url.identity}/api/session/`, { bearer: session }),
    ask('POST', `${url.secrets}/api/store/encrypt`, {
      bearer: AUTH_TOKEN,
      body: { password: 'a' },
    }),
    // A stream whose first piece needs the database.
    ask('GET', `${url.secrets}/api/store`, { bearer: AUTH_TOKEN }),
    ask('POST', `${url.webhook}/webhook`, { bearer: WEBHOOK_TOKEN, body: event }),
  ]);
  const outcomes = answers.map(({ status, json, headers }) => [
    status,
    json.error.code,
    headers.has('retry-after'),
  ]);
  const identityFailed = [500, 'service_failed', false];
  const failed = [503, 'unavailable', true];
  assert.deepEqual(outcomes, [identityFailed, identityFailed, failed, failed, failed]);
});

test('a reply that is ready too late is discarded, and the log shows the one that was sent', async (t) => {
  const { opened: later, open: release } = latch();
  async function* pieces() {
    await later;
    yield 'too late';
  }
  const routes = [
    get('/value', async () => {
      await later;
      return { data: 'too late' };
    }),
    get('/stream', async () => ({ text: pieces(), contentType: 'text/plain' })),
    get('/failing', async () => {
      await later;
      throw new Error('too late');
    }),
  ];
  const { url, inFlight, requests } = await startListener(t, routes, new BlockList(), 100);
  const clients = [];
  for (const path of ['/value', '/stream', '/failing']) {
    const client = await connectTo(url);
    clients.push(client);
    // Its body, which no route reads, keeps the exchange open after the reply.
    client.send(headOf([`GET ${path} HTTP/1.1`, 'Host: gatehouse.test', 'Content-Length: 4']));
    const { status, json } = await client.answer();
    assert.deepEqual([status, json.error.code], [503, 'unavailable'], path);
  }
  release();
  // By then, the handlers and their replies have had their turns.
  assert.equal((await ask('GET', `${url}/missing`)).status, 404);
  for (const client of clients) client.send('body');
  await until(() => inFlight() === 0);
  const logged = requests().map(({ status }) => status);
  assert.deepEqual(logged, [404, 503, 503, 503]);
  for (const client of clients) client.leave();
});

/** The reply to a list whose statement is cancelled, as PostgreSQL does when it takes too long. */
async function askTooLong(table: string, url: string, bearer: string) {
  const [answer] = await meanwhile(
    sql,
    (held) => held`lock table ${held(table)} in access exclusive mode`,
    () => [ask('GET', url, { bearer })],
    (held) => held`
      select pg_cancel_backend(pid) from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`,
  );
  return answer ?? assert.fail();
}

for (const [table, url, bearer] of LISTS) {
  test(`a list of ${table} that takes too long is 503 too_slow, with Retry-After`, async () => {
    assert.equal((await ask('GET', url, { bearer })).status, 200);
    const { status, json, headers } = await askTooLong(table, url, bearer);
    assert.deepEqual([status, json.error.code], [503, 'too_slow']);
    assert.match(json.error.message, /Narrow it/);
    assert.ok(Number(headers.get('retry-after')) > 0);
    const lines = log().filter(({ message }) => message === 'list took too long');
    assert.match(String(lines.at(-1)?.error), /SQLSTATE 57014: a statement took too long/);
    assert.equal((await ask('GET', url, { bearer })).status, 200);
  });
}

test('any other statement that takes too long is a failed database', async () => {
  const [, url, bearer] = LISTS[0];
  const { status, json } = await askTooLong('identity.sessions', url, bearer);
  assert.deepEqual([status, json.error.code], [500, 'service_failed']);
});

// --- Answers other than what was asked for

const [, , session] = LISTS[0];
const enter = (username = 'admin') =>
  ask('POST', `${identity}/api/auth/login`, { body: { username, password: ADMIN_PASSWORD } });
const read = (path: string) => ask('GET', identity + path, { bearer: session });

test('while a table is missing, a credential is neither accepted nor rejected', async () => {
  await sql`alter table identity.sessions rename to hidden_sessions`;
  const answer = await read('/api/test/');
  assertError(answer, 500, 'service_failed');
  assertError(await enter(), 500, 'service_failed');
  assert.doesNotMatch(answer.text, /42P01|relation|hidden|select/i, 'not explained to the caller');
  const line = log().find(({ request_id }) => request_id === answer.json._meta.request_id);
  assert.match(String(line?.error), /42P01/);
  await sql`alter table identity.hidden_sessions rename to sessions`;
  assert.equal(await isOpen(identity, session), true);
});

test('a login or a list that cannot be looked up is 500, whoever asks', async () => {
  await sql`alter table identity.users rename to hidden_users`;
  for (const name of ['admin', 'nobody-here'])
    assertError(await enter(name), 500, 'service_failed');
  await sql`alter table identity.hidden_users rename to users`;
  // What only the lists read.
  await sql`alter table identity.api_keys rename column name to hidden_name`;
  await sql`alter table identity.audit rename column created_at to hidden_time`;
  for (const path of ['/api/key/', '/api/audit/'])
    assertError(await read(path), 500, 'service_failed');
  assert.equal(await isOpen(identity, session), true);
  await sql`alter table identity.api_keys rename column hidden_name to name`;
  await sql`alter table identity.audit rename column hidden_time to created_at`;
});

test('a stored hash that cannot be verified is 500 and no login', async () => {
  const costly = `$scrypt$ln=40,r=8,p=1$${'A'.repeat(22)}$${'A'.repeat(43)}`;
  const before = await sql`select from identity.sessions`;
  for (const hash of ['', 'plain text', costly]) {
    await sql`update identity.users set password_hash = ${hash}`;
    assert.equal((await enter()).status, 500, hash);
  }
  assert.equal((await sql`select from identity.sessions`).length, before.length);
});

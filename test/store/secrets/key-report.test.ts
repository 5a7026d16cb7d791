/**
 * The report on server secrets at startup and in the metrics; then links whose server secret this
 * replica lacks: the service says so, and counts no wrong link. A secret that has ended needs no
 * server secret.
 */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { createDatabase } from '../../support/database.ts';
import { keepExpired } from '../../support/expired.ts';
import {
  type Answer,
  ask,
  type Gatehouse,
  launch,
  SERVER_SECRET,
  startGatehouse,
} from '../../support/gatehouse.ts';
import type { Owner } from '../../support/owner.ts';
import { expireRequest, requestsClient } from '../../support/secret-requests.ts';
import { secretsClient } from '../../support/secrets.ts';
import { until } from '../../support/until.ts';

const OLD = SERVER_SECRET;
const NEW = 'new-server-secret-0123456789abcdefghijklmn';
const OTHER = 'other-server-secret-0123456789abcdefghijkl';
const idOf = (secret: string) => createServerKey(secret).id;

const start = (owner: Owner, url: string, current: string, previous = '') =>
  startGatehouse(owner, ['secrets'], url, {
    SHARE_PAGES: 'on',
    SERVER_SECRET: current,
    SERVER_SECRET_PREVIOUS: previous,
  });

const NEW_HERE =
  'SERVER_SECRET was never used with this database before: correct in a rotation, otherwise a mistake';
const MISSING =
  'a server secret is missing: add the one with this key id to SERVER_SECRET_PREVIOUS';

/**
 * The log lines about server secrets, in order. They follow the count, which runs in the
 * background.
 */
async function reportOf({ log }: Gatehouse) {
  await until(() => log().some(({ state }) => state === 'current'), 'the report');
  // All lines are written in the same turn.
  await setImmediate();
  const ours = new Set<unknown>([NEW_HERE, MISSING, 'server secret']);
  return log()
    .filter(({ message }) => ours.has(message))
    .map(({ level, message, key_id, state, secrets }) =>
      [level, message, key_id, state, secrets].filter((one) => one !== undefined),
    );
}

/** A database with three secrets encrypted under OLD, one of which can be read once. */
async function withThree(t: TestContext) {
  const { url, sql } = await createDatabase(t);
  const gatehouse = await start(t, url, OLD);
  // The first server secret of a database is no reason for a warning.
  assert.deepEqual(await reportOf(gatehouse), [['info', 'server secret', idOf(OLD), 'current', 0]]);
  const client = secretsClient(gatehouse.url.secrets);
  const made = [
    await client.keep('marked-text'),
    await client.keep('marked-text', { max_reads: 1 }),
    await client.keep('marked-text', { passphrase: 'marked-words' }),
  ];
  return { url, sql, gatehouse, client, made };
}

const { sql, databaseUrl, secrets: before } = await launch(['secrets'], { SHARE_PAGES: 'on' });
const { url, log } = await start({ after }, databaseUrl, NEW);
const both = requestsClient((await start({ after }, databaseUrl, NEW, OLD)).url.secrets);

test('a wrong SERVER_SECRET: each missing key id is reported at startup; the service serves', async (t) => {
  const { url, gatehouse, made } = await withThree(t);
  await gatehouse.stop();
  const wrong = await start(t, url, NEW);
  assert.deepEqual(await reportOf(wrong), [
    ['warn', NEW_HERE, idOf(NEW)],
    ['error', MISSING, idOf(OLD), 'missing', 3],
    ['info', 'server secret', idOf(NEW), 'current', 0],
  ]);
  assert.equal((await ask('GET', `${wrong.url.secrets}/readyz`)).status, 200);
  const there = secretsClient(wrong.url.secrets);
  const own = await there.keep('new');
  assert.equal((await there.decrypt(own.id, own.secret)).status, 200, 'new secrets are served');
  await wrong.stop();

  // Back to the right one: the wrong one is known by now, and one secret needs it.
  const right = await start(t, url, OLD);
  assert.deepEqual((await reportOf(right)).sort(), [
    ['error', MISSING, idOf(NEW), 'missing', 1],
    ['info', 'server secret', idOf(OLD), 'current', 3],
  ]);
  assert.deepEqual(await reportOf(await start(t, url, OTHER, `${NEW},${OLD}`)), [
    ['warn', NEW_HERE, idOf(OTHER)],
    ['info', 'server secret', idOf(OLD), 'previous', 3],
    ['info', 'server secret', idOf(NEW), 'previous', 1],
    ['info', 'server secret', idOf(OTHER), 'current', 0],
  ]);
  const back = secretsClient(right.url.secrets);
  for (const { id, secret } of made.slice(0, 2))
    assert.equal((await back.decrypt(id, secret)).json.password, 'marked-text');
});

test('a server secret is new once, and can be removed without a report if no secret needs it', async (t) => {
  const { url, sql, client, made } = await withThree(t);
  const [kept, once, locked] = made;
  assert.ok(kept && once && locked);
  await client.decrypt(once.id, once.secret);
  await client.remove(kept.id);
  await sql`
    update secrets.secrets set blob = null, tag = null, ending = 'expired', ended_at = now()
    where id = ${locked.id}`;
  // One of several replicas that start together warns.
  const replicas = await Promise.all([1, 2, 3].map(() => start(t, url, NEW, OLD)));
  const reports = (await Promise.all(replicas.map(reportOf))).flat();
  assert.equal(reports.filter(([, message]) => message === NEW_HERE).length, 1);
  assert.deepEqual(await reportOf(await start(t, url, NEW)), [
    ['info', 'server secret', idOf(NEW), 'current', 0],
  ]);
});

test('metrics: the number of secrets and requests for each known server secret, down to 0', async (t) => {
  const { url, gatehouse, client, made } = await withThree(t);
  const asked = await requestsClient(gatehouse.url.secrets).request();
  await secretsClient((await start(t, url, NEW, OLD)).url.secrets).keep('x');
  const counting = await start(t, url, OLD);
  const assertStored = async (underOld: number) => {
    await counting.runJobs(/count secrets/);
    const { text } = await ask('GET', `${counting.url.metrics}/metrics`);
    const lines = text.match(/^gatehouse_secrets_stored\{.*$/gm) ?? [];
    const line = (secret: string, secrets: number) =>
      `gatehouse_secrets_stored{key_id="${idOf(secret)}"} ${secrets}`;
    assert.deepEqual(lines.sort(), [line(OLD, underOld), line(NEW, 1)].sort());
  };
  await assertStored(4);
  for (const { id } of [...made, asked]) await client.remove(id);
  await assertStored(0);
});

// --- Links

const without = secretsClient(url.secrets);
const { post } = requestsClient(url.secrets);
const { request } = requestsClient(before);
const keep = async ({ encrypt } = secretsClient(before)) =>
  (await encrypt({ password: 'x', max_reads: 1 })).json;
const codeOf = ({ json }: Answer) => json.error?.code;
const attempts = async () =>
  Number((await sql`select coalesce(sum(attempts), 0) as sum from secrets.throttles`)[0]?.sum);
const errors = () => log().filter(({ level, secret_id }) => level === 'error' && secret_id);
const WRONG = 'A'.repeat(43);

test('a missing server secret: 503 for every key of a link, and no wrong link is counted', async () => {
  const { id, secret, receipt } = await keep();
  const asked = await request();
  const links = [
    [`/s/${id}/status`, { secret }],
    [`/r/${id}`, { key: receipt }],
    [`/s/${id}/delete`, { key: receipt }],
    [`/request/${asked.id}`, { key: asked.digest }],
    [`/request/${asked.id}`, { key: asked.receipt }],
    [`/r/${asked.id}`, { key: asked.receipt }],
  ] as const;
  for (const [path, body] of [
    ...links,
    [`/s/${id}`, { secret }],
    [`/s/${id}`, { secret: WRONG }],
    [`/s/${asked.id}/delete`, { key: asked.receipt }],
  ] as const)
    assert.equal(codeOf(await post(path, body)), 'key_unknown', path);
  assert.equal(codeOf(await without.decrypt(id, secret)), 'key_unknown');
  assert.deepEqual(new Set(errors().map(({ secret_id }) => secret_id)), new Set([id, asked.id]));
  for (const { message, key_id } of errors())
    assert.deepEqual([message, key_id], [MISSING, idOf(OLD)]);
  assert.equal(await attempts(), 0);
  for (const [path, body] of links) assert.equal((await both.post(path, body)).status, 200, path);
});

test('what has ended is not found without its server secret, without an error or a count', async () => {
  const { id, secret, receipt } = await keep();
  await without.remove(id);
  const asked = await request();
  await expireRequest(sql, asked.id);
  const reported = errors().length;
  for (const [path, body] of [
    [`/s/${id}/status`, { secret }],
    [`/r/${id}`, { key: receipt }],
    [`/request/${asked.id}`, { key: asked.digest }],
    [`/r/${asked.id}`, { key: asked.receipt }],
  ] as const)
    assert.equal(codeOf(await post(path, body)), 'not_found', path);
  const expired = await keepExpired(sql);
  assert.equal(codeOf(await without.decrypt(expired.id, expired.secret)), 'not_found');
  assert.deepEqual([errors().length, await attempts()], [reported, 0]);
});

test('a wrong key counts if its server secret is there, also of an altered secret', async () => {
  const { id } = await keep(without);
  const altered = await keep(without);
  await sql`update secrets.secrets set max_reads = 2 where id = ${altered.id}`;
  for (const [path, body, code] of [
    [`/s/${id}/status`, { secret: WRONG }, 'not_found'],
    [`/r/${id}`, { key: 'x' }, 'not_found'],
    [`/s/${altered.id}`, { secret: WRONG }, 'secret_damaged'],
  ] as const)
    assert.equal(codeOf(await post(path, body)), code, path);
  assert.equal(await attempts(), 3);
  // Of an earlier server secret.
  const earlier = await keep();
  await sql`update secrets.secrets set max_reads = 2 where id = ${earlier.id}`;
  const status = await both.post(`/s/${earlier.id}/status`, { secret: earlier.secret });
  assert.equal(codeOf(status), 'secret_damaged');
});

test('an answer after a rotation leaves its request under the earlier server secret', async () => {
  const asked = await request();
  assert.equal((await both.answer(asked)).status, 201);
  const { json } = await both.post(`/request/${asked.id}`, { key: asked.receipt });
  assert.equal(json.status, 'answered');
});

/** A database that is slow, suspended or away, and readers who leave: nobody loses a read. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type TestContext, test } from 'node:test';
import type { Sql } from 'postgres';
import { useUpRead } from '../../../src/secrets/store/secrets.ts';
import { stopClock } from '../../support/clock.ts';
import { openConnections, untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { type Answer, ask, startGatehouse } from '../../support/gatehouse.ts';
import { startProxy } from '../../support/proxy.ts';
import { secretsClient } from '../../support/secrets.ts';
import { connectTo, headOf, serverSockets } from '../../support/socket.ts';
import { until } from '../../support/until.ts';

const ANSWER_MS = 2_000;
const PASSPHRASE = 'said by phone';
const TEXT = 'marked-password-text';

async function startBehindProxy(t: TestContext) {
  const { url, sql } = await createDatabase(t);
  const proxy = await startProxy(t, url);
  const settings = { SHARE_PAGES: 'on' };
  const gatehouse = await startGatehouse(t, ['secrets'], proxy.url, settings, 'ready', ANSWER_MS);
  const base = gatehouse.url.secrets;
  const rowOf = async (id: string) => {
    const [row] = await sql`
      select reads::int as reads, failed_reads::int as failed, ending
      from secrets.secrets where id = ${id}`;
    return { ...row };
  };
  return { url, sql, proxy, gatehouse, base, rowOf, ...secretsClient(base) };
}

const UNREAD = { reads: 0, failed: 0, ending: null };

for (const [seconds, lock] of [
  [0.4, { passphrase: PASSPHRASE }],
  // Each of the two before the read has two replies: one to prepare it. That is more than half of
  // the time, and the statement that uses up a read could take as long.
  [0.3, {}],
] as const) {
  test(`each reply takes ${seconds} of 2 s: 503, and a one-time secret is unread`, async (t) => {
    const pass = stopClock(t);
    const { proxy, base, keep, rowOf } = await startBehindProxy(t);
    const { id, secret } = await keep('a', { max_reads: 1, ...lock });
    proxy.onReply(() => pass(seconds));
    const body = { secret, ...lock };
    const answer = await ask('POST', `${base}/s/${id}`, { body });
    assert.deepEqual([answer.status, answer.json.error.code], [503, 'unavailable']);
    assert.ok(Number(answer.headers.get('retry-after')) > 0);
    proxy.onReply(() => {});
    assert.deepEqual(await rowOf(id), UNREAD);
    const again = await ask('POST', `${base}/s/${id}`, { body });
    assert.deepEqual([again.json.password, again.json.reads_left], ['a', 0]);
  });
}

/** Sends a request, and disconnects while the database works on its first statement. */
async function openAndLeave(t: TestContext, sql: Sql, base: string, id: string, body: object) {
  const accepted = serverSockets(t);
  const { socket, send, leave } = await connectTo(base);
  const text = JSON.stringify(body);
  await sql.begin(async (locked) => {
    await locked`lock table secrets.secrets in access exclusive mode`;
    const head = [`POST /s/${id} HTTP/1.1`, 'Host: a', 'Content-Type: application/json'];
    send(headOf([...head, `Content-Length: ${text.length}`]), text);
    await untilSql(async () => {
      await locked`select pg_stat_clear_snapshot()`;
      // A job may wait as well.
      const waiting = await locked`
        select from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'
          and query like '%commitment%'`;
      return waiting.length > 0;
    }, 'the statement of the request waits');
    const [other] = accepted.filter(({ remotePort }) => remotePort === socket.localPort);
    leave();
    await until(() => other?.destroyed === true, 'the service has noticed');
  });
}

for (const lock of [{}, { passphrase: PASSPHRASE }]) {
  test(`a reader with ${['key', ...Object.keys(lock)].join(' and ')} who leaves uses nothing up`, async (t) => {
    const { sql, gatehouse, base, keep, rowOf } = await startBehindProxy(t);
    const { id, secret } = await keep('a', { max_reads: 1, ...lock });
    await openAndLeave(t, sql, base, id, { secret, ...lock });
    const hasEnded = () => gatehouse.log().some((line) => line.route === 'POST /s/{id}');
    await until(hasEnded, 'the request has ended');
    assert.deepEqual(await rowOf(id), UNREAD);
    const { json } = await ask('POST', `${base}/s/${id}`, { body: { secret, ...lock } });
    assert.equal(json.password, 'a');
  });
}

test('with suspended database processes: 503, and nothing is used up when they go on', async (t) => {
  const { sql, base, keep, rowOf } = await startBehindProxy(t);
  const { id, secret } = await keep('a', { max_reads: 1 });
  const backends = await sql`
    select pid from pg_stat_activity
    where datname = current_database() and application_name like 'gatehouse%'`;
  const signal = (name: NodeJS.Signals) => {
    for (const { pid } of backends) process.kill(pid, name);
  };
  signal('SIGSTOP');
  try {
    const { status } = await ask('POST', `${base}/s/${id}`, { body: { secret } });
    assert.equal(status, 503);
  } finally {
    signal('SIGCONT');
  }
  assert.equal((await ask('POST', `${base}/s/${id}`, { body: { secret } })).status, 200);
  assert.deepEqual(await rowOf(id), { reads: 1, failed: 0, ending: 'read' });
});

test('a statement that reaches the database after its end uses nothing up', async (t) => {
  const { url, sql, keep } = await startBehindProxy(t);
  const { id } = await keep('a', { max_reads: 1 });
  const [row] = await sql`select commitment, now() as now from secrets.secrets where id = ${id}`;
  const { commitment, now } = row ?? assert.fail();
  const database = openConnections(t, url, 'reader');
  const readUntil = (ms: number) =>
    useUpRead(database, {
      id,
      commitment,
      isLate: () => false,
      until: new Date(now.getTime() + ms),
    });
  assert.equal(await readUntil(0), null);
  assert.equal((await readUntil(600_000))?.reads, 1);
});

function assertUnavailable({ status, json, headers, text }: Answer): void {
  assert.deepEqual([status, json.error.code], [503, 'unavailable']);
  assert.match(headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
  assert.ok(!text.includes(TEXT));
}

test('without a database: every operation is 503 with Retry-After, and no data is lost', async (t) => {
  const { proxy, base, encrypt, keep, decrypt, list, rowOf } = await startBehindProxy(t);
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  const isReady = async () => (await ask('GET', `${base}/readyz`)).status === 200;
  await proxy.cut();
  // A failed read that cannot be recorded is 503, too.
  for (const answer of [
    await encrypt({ password: TEXT }),
    await decrypt(id, secret),
    await decrypt(randomUUID(), secret),
    await decrypt(id, 'no key'),
    await list(),
  ])
    assertUnavailable(answer);
  await untilSql(async () => !(await isReady()), 'it is not ready');
  assert.equal((await ask('GET', `${base}/livez`)).status, 200);
  for (const token of [{}, { bearer: 'wrong' }])
    assert.equal((await ask('GET', `${base}/api/store`, token)).status, 401);
  assert.equal((await encrypt({ password: '' })).status, 400);
  assert.deepEqual(await rowOf(id), UNREAD);

  await proxy.restore();
  await untilSql(isReady, 'it is ready');
  assert.equal((await decrypt(id, secret)).json.password, TEXT);
});

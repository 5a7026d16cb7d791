import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { type Answer, ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { startProxy } from '../../support/proxy.ts';

const EVENT = { event: 'page.updated', data: { page_id: 'p1' } };

const { url: databaseUrl, sql } = await createDatabase();
const proxy = await startProxy({ after }, databaseUrl);
const replicas = await Promise.all(
  [1, 2].map(() => startGatehouse({ after }, ['webhook'], proxy.url)),
);
const addressOf = (turn: number) =>
  replicas[turn % replicas.length]?.url.webhook ?? assert.fail('there is a replica for every turn');

const post = (turn = 0, headers: Record<string, string> = {}, token = WEBHOOK_TOKEN) =>
  ask('POST', `${addressOf(turn)}/webhook`, { bearer: token, body: EVENT, headers });
const events = async () => [...(await sql`select id, delivery_id from webhook.events order by id`)];
const waiting = () =>
  sql`select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;

function isUnavailable(answer: Answer): void {
  assert.equal(answer.status, 503, answer.text);
  assert.equal(answer.json.error.code, 'unavailable');
  assert.match(answer.headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
}

test('one of 40 identical deliveries to two replicas is accepted, the others are duplicates', async () => {
  for (let round = 0; round < 5; round += 1) {
    const key = randomUUID();
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, turn) => post(turn, { 'webhook-id': key })),
    );
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
    assert.equal(answers.filter(({ json }) => json.status === 'accepted').length, 1);
    assert.equal(answers.filter(({ json }) => json.status === 'duplicate').length, 39);
    const stored = await sql`select id from webhook.events where delivery_id = ${key}`;
    assert.equal(stored.length, 1);
    assert.deepEqual([...new Set(answers.map(({ json }) => json.id))], [stored[0]?.id]);
  }
});

/** Blocks inserts of events, but no read, until `release`. */
async function heldUp(
  count: number,
  operation: () => Promise<Answer[]>,
  release: (unlock: () => PromiseLike<unknown>) => PromiseLike<unknown>,
): Promise<Answer[]> {
  const blocker = connect(databaseUrl);
  try {
    await blocker`begin`;
    await blocker`lock table webhook.events in share mode`;
    let isAnswered = false;
    const pending = operation().finally(() => {
      isAnswered = true;
    });
    await untilSql(async () => (await waiting()).length >= count, 'they wait');
    assert.equal(isAnswered, false);
    await release(() => blocker`commit`);
    return await pending;
  } finally {
    await blocker.end();
  }
}

test('200 is sent only after the commit', async () => {
  const key = randomUUID();
  // Two copies in flight before either is stored.
  const answers = await heldUp(
    2,
    () => Promise.all([post(0, { 'webhook-id': key }), post(1, { 'webhook-id': key })]),
    (unlock) => unlock(),
  );
  assert.deepEqual(
    answers.map(({ status }) => status),
    [200, 200],
  );
  assert.deepEqual(answers.map(({ json }) => json.status).sort(), ['accepted', 'duplicate']);
});

test('an event that could not be stored is answered 503 and accepted when repeated', async () => {
  const key = randomUUID();
  const before = await events();
  const [answer] = await heldUp(
    1,
    async () => [await post(0, { 'webhook-id': key })],
    () => sql`select pg_terminate_backend(pid) from (${waiting()}) waiting`,
  );
  assert.ok(answer);
  isUnavailable(answer);
  assert.deepEqual(await events(), before);
  // The lost connection is replaced; until then the reply may be 503.
  let again = await post(0, { 'webhook-id': key });
  while (again.status === 503) again = await post(0, { 'webhook-id': key });
  assert.equal(again.json.status, 'accepted');
});

test('without the database every delivery is answered 503 with Retry-After, whatever its token', async () => {
  const before = await events();
  await proxy.cut();
  const isReady = async (turn: number) =>
    (await ask('GET', `${addressOf(turn)}/readyz`)).status === 200;
  for (let turn = 0; turn < 4; turn += 1) {
    isUnavailable(await post(turn));
    isUnavailable(await post(turn, { 'webhook-id': 'away' }));
    // A token cannot be checked now, and 401 would make a sender give up.
    isUnavailable(await post(turn, {}, 'wrong-token'));
    await untilSql(async () => !(await isReady(turn)), 'it is not ready');
    assert.equal((await ask('GET', `${addressOf(turn)}/livez`)).status, 200);
  }
  assert.deepEqual(await events(), before);
  await proxy.restore();
  for (const turn of [0, 1]) await untilSql(() => isReady(turn), 'it is ready');
  let answer = await post(0, { 'webhook-id': 'away' });
  while (answer.status === 503) answer = await post(0, { 'webhook-id': 'away' });
  assert.equal(answer.json.status, 'accepted');
  assert.equal((await post(0, {}, 'wrong-token')).status, 401);
});

test('a revocation takes effect at once on every replica', async () => {
  for (const turn of [0, 1]) assert.equal((await post(turn)).status, 200);
  await sql`update webhook.tokens set revoked_at = now()`;
  for (const turn of [0, 1, 0, 1]) assert.equal((await post(turn)).status, 401);
  await sql`update webhook.tokens set revoked_at = null`;
});

/** A database that the first version of the receiver has filled, brought up to date: its tokens open, its events are kept and can be delivered. */
import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { test, type TestContext } from 'node:test';
import { migrate } from '../../src/db/migrate.ts';
import { MIGRATIONS, SCHEMA } from '../../src/webhook/migrations.ts';
import { createDatabase, type TestDatabase } from '../support/database.ts';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN } from '../support/inbox.ts';
import { openLanes, untilSql } from '../support/lanes.ts';

const EVENT = { event: 'page.updated', data: { page_id: 'p1' } };
const REVOKED = 'revoked-token-0123456789abcdefghijklmnopqr';
const BODY = ' {"event":"kept" ,"data":{"page_id":"p\\u0000"}}\n';

interface Old extends TestDatabase {
  readonly live: string;
  readonly events: readonly string[];
}

/** A database at the first step, with rows as the version of that step wrote them. */
async function createOld(t: TestContext): Promise<Old> {
  const file = await createDatabase(t);
  assert.equal(await migrate(openLanes(t, file.url, 'old'), SCHEMA, MIGRATIONS.slice(0, 1)), 1);
  const [live, revoked] = [randomUUID(), randomUUID()];
  for (const [id, token, end] of [[live, WEBHOOK_TOKEN, null], [revoked, REVOKED, new Date()]] as const) {
    await file.sql`insert into webhook.tokens (id, name, digest, revoked_at) values (${id}, 'of the first version', ${createHash('sha256').update(token).digest()}, ${end})`;
  }
  const events = [];
  for (const [deliveryId, token, age] of [['msg_1', live, 3], [null, live, 2], ['msg_1', revoked, 1]] as const) {
    const [row] = await file.sql`
      insert into webhook.events (id, token_id, delivery_id, event, body, received_at)
      values (${randomUUID()}, ${token}, ${deliveryId}, 'kept', ${Buffer.from(BODY)}, now() - make_interval(days => ${age})) returning id`;
    events.push(String(row?.id));
  }
  return { ...file, live, events };
}

test('tokens of the first version open or stay closed as before, and a delivery id of then is still known', async (t) => {
  const { url: databaseUrl, sql, live, events } = await createOld(t);
  const { url } = await startGatehouse(t, ['webhook'], databaseUrl);
  const post = (bearer: string, body: unknown, headers: Record<string, string> = {}) => ask('POST', `${url.webhook}/webhook`, { bearer, body, headers });
  assert.equal((await post(WEBHOOK_TOKEN, EVENT)).json.status, 'accepted');
  assert.equal((await post(REVOKED, EVENT)).status, 401);
  assert.deepEqual((await post(WEBHOOK_TOKEN, BODY, { 'webhook-id': 'msg_1' })).json, { id: events[0], status: 'duplicate' });
  assert.equal((await post(WEBHOOK_TOKEN, EVENT, { 'webhook-id': 'msg_1' })).status, 409);
  const [token] = await sql`select role, source, previous_digest, revoked_at from webhook.tokens where id = ${live}`;
  assert.deepEqual({ ...token }, { role: 'sender', source: 'generic', previous_digest: null, revoked_at: null });
  // No token of then may read what the inbox holds.
  for (const bearer of [WEBHOOK_TOKEN, REVOKED]) assert.equal((await ask('GET', `${url.webhook}/events`, { bearer })).status, 401);
});

test('events of the first version are listed as stored and wait for an operator, who has them delivered', async (t) => {
  const { url: databaseUrl, sql, live, events } = await createOld(t);
  const command = JSON.stringify([process.execPath, '-e', 'process.stdin.on("data", (bytes) => process.exit(String(bytes).includes("kept") && process.env.EVENT_SOURCE === "generic" ? 0 : 1))']);
  const { url } = await startGatehouse(t, ['webhook'], databaseUrl, { WEBHOOK_COMMAND: command, WEBHOOK_MAX_ATTEMPTS: '1' });
  await addOperator(sql);
  const call = async (method: string, path: string) => {
    const { status, json } = await ask(method, url.webhook + path, { bearer: OPERATOR_TOKEN });
    assert.equal(status, 200, path);
    return json;
  };
  const old = async () => (await call('GET', '/events?event=kept')).map(({ id, status, attempts }: Record<string, unknown>) => [id, status, attempts]);
  const asStored = [...events].reverse().map((id) => [id, 'stored', 0]);
  assert.deepEqual(await old(), asStored);
  // What comes now is delivered. What came when there was no delivery is not, unless somebody says so.
  const { json } = await ask('POST', `${url.webhook}/webhook`, { bearer: WEBHOOK_TOKEN, body: { ...EVENT, event: 'kept again' } });
  await untilSql(async () => (await call('GET', `/events/${json.id}`)).event.status === 'done', 'the new event is done');
  assert.deepEqual(await old(), asStored);
  const { event, ...rest } = await call('GET', `/events/${events[0]}`);
  assert.deepEqual([event.source, event.delivery_id, rest], ['generic', 'msg_1', { token_id: live, ip: null, headers: {}, body: BODY, failures: [] }]);
  for (const id of events) assert.deepEqual(await call('POST', `/events/${id}/redeliver`), { id, status: 'waiting' });
  await untilSql(async () => (await sql`select from webhook.work`).length === 0, 'all have ended');
  assert.deepEqual(await old(), [...events].reverse().map((id) => [id, 'done', 1]));
});

test('each step of the schema follows on every earlier one, and again changes nothing', async (t) => {
  for (let steps = 1; steps < MIGRATIONS.length; steps += 1) {
    const { url } = await createDatabase(t);
    const database = openLanes(t, url, 'steps');
    assert.equal(await migrate(database, SCHEMA, MIGRATIONS.slice(0, steps)), steps);
    assert.equal(await migrate(database, SCHEMA, MIGRATIONS), MIGRATIONS.length - steps);
    assert.equal(await migrate(database, SCHEMA, MIGRATIONS), 0);
  }
});

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import {
  type Answer,
  ask,
  type Gatehouse,
  startGatehouse,
  variables,
  WEBHOOK_TOKEN,
} from '../../support/gatehouse.ts';
import { startKillablePostgres } from '../../support/killable-postgres.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { startRecorder } from '../../support/recorder.ts';
import { secretsClient } from '../../support/secrets.ts';
import { until, someTurns, test } from '../../support/until.ts';
import { sendEvent } from '../../support/webhook-store.ts';

const SENDERS = 8;
const SERVICES = ['secrets', 'webhook'] as const;

/** Senders of webhook and of secrets, and what was acknowledged to them. */
function createLoad(url: Gatehouse['url']) {
  const secrets = secretsClient(url.secrets);
  const events = new Map<string, string>();
  const kept = new Map<string, string>();
  const refused: Answer[] = [];
  let goesOn = true;
  /** Repeats a request until it is acknowledged, as senders do. */
  const repeat = async (status: number, request: () => Promise<Answer>): Promise<Answer> => {
    for (;;) {
      const answer = await request();
      if (answer.status === status) return answer;
      refused.push(answer);
      await someTurns();
    }
  };
  const send = async (sender: number) => {
    for (let number = 0; goesOn; number += 1) {
      const event = `${sender}-${number}`;
      const body = { event, data: { page_id: 'p' } };
      const headers = { 'webhook-id': event };
      const { json } = await repeat(200, () =>
        ask('POST', `${url.webhook}/webhook`, { bearer: WEBHOOK_TOKEN, body, headers }),
      );
      events.set(event, json.id);
    }
  };
  const keep = async (sender: number) => {
    while (goesOn) {
      const { json } = await repeat(201, () => secrets.encrypt({ password: `of ${sender}` }));
      kept.set(json.id, json.secret);
    }
  };
  const end = () => {
    goesOn = false;
  };
  return { secrets, events, kept, refused, send, keep, end };
}

test('acknowledged writes survive kill -9 of the database under load, and the services recover', async (t) => {
  const killable = await startKillablePostgres(t);
  const { url } = await startGatehouse(t, SERVICES, killable.proxyUrl);
  const load = createLoad(url);
  const { events, kept, refused } = load;
  const senders = Promise.all(
    Array.from({ length: SENDERS }, (_, sender) =>
      sender % 2 ? load.send(sender) : load.keep(sender),
    ),
  );
  const reach = (isReached: () => boolean) => Promise.race([until(isReached), senders]);
  const statusOf = async (name: (typeof SERVICES)[number], path: string) =>
    (await ask('GET', `${url[name]}/${path}`)).status;
  const areReady = async (status: number) => {
    for (const name of SERVICES)
      await untilSql(async () => (await statusOf(name, 'readyz')) === status, `${name}: ${status}`);
  };

  await reach(() => events.size >= 50 && kept.size >= 50);
  await killable.kill();
  await reach(() => refused.length >= 2 * SENDERS);
  await areReady(503);
  for (const name of SERVICES) assert.equal(await statusOf(name, 'livez'), 200);
  const before = [events.size + 50, kept.size + 50] as const;
  await killable.restart();
  await reach(() => events.size >= before[0] && kept.size >= before[1]);
  load.end();
  await senders;
  await areReady(200);

  for (const { status, json, headers } of refused)
    assert.deepEqual(
      [status, json.error.code, headers.has('retry-after')],
      [503, 'unavailable', true],
    );
  const stored = await killable.query((sql) => sql`select delivery_id, id from webhook.events`);
  const ids = new Map(stored.map(({ delivery_id, id }) => [delivery_id, id]));
  assert.deepEqual(ids, events, 'every delivery once, under the id that was answered');
  assert.equal(stored.length, events.size);
  const rows = await killable.query((sql) => sql`select id from secrets.secrets`);
  const secretIds = new Set(rows.map(({ id }) => id));
  for (const id of kept.keys()) assert.ok(secretIds.has(id), id);
  for (const [id, secret] of [...kept].filter((_, index) => index % 20 === 0))
    assert.equal((await load.secrets.decrypt(id, secret)).status, 200);
});

/** A target that counts deliveries of one page at the same time, and holds its replies. */
async function startPageTarget(t: TestContext) {
  const recorder = await startRecorder(t);
  const active = new Map<string, number>();
  const seen = { url: recorder.url, begun: new Array<string>(), overlaps: 0, isHeld: true };
  recorder.answer((response, { body }) => {
    const { event, data } = JSON.parse(body);
    const page: string = data.page_id;
    active.set(page, (active.get(page) ?? 0) + 1);
    if (active.get(page) !== 1) seen.overlaps += 1;
    response.once('close', () => active.set(page, (active.get(page) ?? 0) - 1));
    seen.begun.push(event);
    if (!seen.isHeld) void someTurns().then(() => response.writeHead(200).end());
  });
  return seen;
}

test('kill -9 of a replica that delivers a page ends neither the order nor the delivery', async (t) => {
  const own = await createDatabase(t);
  const target = await startPageTarget(t);
  const { begun } = target;
  const environment = {
    ...variables(own.url),
    WEBHOOK_FORWARD_URL: target.url,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_ORDER: 'page_id',
  };
  const start = async () => {
    const program = startProgram(t, buildProgram(), ['serve', 'webhook'], environment);
    await program.ready('webhook');
    return { ...program, address: await program.url('webhook') };
  };
  const send = async (from: number, to: number, address: string) => {
    for (let number = from; number < to; number += 1)
      for (const page of ['p', 'q']) await sendEvent(address, `${page} ${number}`, page);
  };
  const first = await start();
  await send(0, 20, first.address);
  await until(() => begun.length === 2, 'both pages are being delivered');
  first.signal('SIGKILL');
  await first.ended;
  target.isHeld = false;
  const [second] = await Promise.all([start(), start()]);
  await send(20, 40, second.address);
  assert.equal(begun.length, 2, 'the leases of the killed replica hold');
  await own.sql`update webhook.work set due_at = now() where lease is not null`;
  await own.sql`update webhook.pages set due_at = now()`;
  const waiting = async () => (await own.sql`select from webhook.work`).length;
  await untilSql(async () => (await waiting()) === 0, 'nothing waits');
  assert.equal(target.overlaps, 0);
  for (const page of ['p', 'q']) {
    const expected = [0, ...Array(40).keys()].map((number) => `${page} ${number}`);
    const ofPage = begun.filter((event) => event.startsWith(page));
    assert.deepEqual(ofPage, expected, 'the interrupted one twice, then in order');
  }
});

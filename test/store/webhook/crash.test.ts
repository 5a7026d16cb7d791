import assert from 'node:assert/strict';
import { type TestContext } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { startKillablePostgres } from '../../support/killable-postgres.ts';
import {
  type Answer,
  ask,
  startGatehouse,
  WEBHOOK_TOKEN,
  variables,
} from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import { until, someTurns, test } from '../../support/until.ts';
import { createDatabase } from '../../support/database.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { startRecorder } from '../../support/recorder.ts';

const SENDERS = 8;
type Secrets = ReturnType<typeof secretsClient>;

function assertUnavailable({ status, json, headers }: Answer): void {
  assert.equal(status, 503);
  assert.equal(json.error.code, 'unavailable');
  assert.ok(headers.has('retry-after'));
}

const post = (url: string, delivery: string) =>
  ask('POST', `${url}/webhook`, {
    bearer: WEBHOOK_TOKEN,
    body: { event: delivery, data: { page_id: 'p' } },
    headers: { 'webhook-id': delivery },
  });

interface Load {
  goesOn: boolean;
  readonly events: Map<string, string>;
  readonly kept: Map<string, string>;
  readonly refused: Answer[];
}

/** Repeats a delivery until it is acknowledged, as senders do. */
async function send(url: string, load: Load, sender: number): Promise<void> {
  for (let number = 0; load.goesOn; number += 1) {
    const delivery = `${sender}-${number}`;
    await untilSql(async () => {
      const answer = await post(url, delivery);
      if (answer.status === 200) load.events.set(delivery, answer.json.id);
      else load.refused.push(answer);
      return answer.status === 200;
    }, 'it is acknowledged');
  }
}

async function keep(secrets: Secrets, load: Load, sender: number): Promise<void> {
  for (let number = 0; load.goesOn; number += 1) {
    await untilSql(async () => {
      const answer = await secrets.encrypt({ password: `${sender}-${number}` });
      if (answer.status === 201) load.kept.set(answer.json.id, answer.json.secret);
      else load.refused.push(answer);
      return answer.status === 201;
    }, 'it is stored');
  }
}

test('acknowledged writes survive kill -9 of the database under load, and the services recover', async (t) => {
  const killable = await startKillablePostgres(t);
  const { url } = await startGatehouse(t, ['secrets', 'webhook'], killable.proxyUrl);
  const secrets = secretsClient(url.secrets);
  const probe = async (service: 'secrets' | 'webhook', path: string) =>
    (await ask('GET', `${url[service]}/${path}`)).status;

  const load: Load = { goesOn: true, events: new Map(), kept: new Map(), refused: [] };
  const { events, kept, refused } = load;
  const senders = Promise.all(
    Array.from({ length: SENDERS }, (_, sender) =>
      sender % 2 ? send(url.webhook, load, sender) : keep(secrets, load, sender),
    ),
  );
  const reach = (isReached: () => boolean) => Promise.race([until(isReached), senders]);

  await reach(() => events.size >= 50 && kept.size >= 50);
  await killable.kill();
  await reach(() => refused.length >= 2 * SENDERS);
  for (const service of ['secrets', 'webhook'] as const) {
    await untilSql(async () => (await probe(service, 'readyz')) === 503, `${service} is not ready`);
    assert.equal(await probe(service, 'livez'), 200);
  }
  const eventsBefore = events.size;
  const keptBefore = kept.size;

  await killable.restart();
  await reach(() => events.size >= eventsBefore + 50 && kept.size >= keptBefore + 50);
  load.goesOn = false;
  await senders;
  for (const service of ['secrets', 'webhook'] as const)
    await untilSql(async () => (await probe(service, 'readyz')) === 200, `${service} is ready`);

  for (const answer of refused) assertUnavailable(answer);
  const stored = await killable.query((sql) => sql`select delivery_id, id from webhook.events`);
  const ids = new Map(stored.map(({ delivery_id, id }) => [delivery_id, id]));
  assert.deepEqual(ids, events, 'every delivery once, under the id that was answered');
  assert.equal(stored.length, events.size);
  const secretRows = await killable.query((sql) => sql`select id from secrets.secrets`);
  const secretIds = new Set(secretRows.map(({ id }) => id));
  for (const id of kept.keys()) assert.ok(secretIds.has(id), id);
  for (const [id, secret] of [...kept].filter((_, index) => index % 20 === 0))
    assert.equal((await secrets.decrypt(id, secret)).status, 200);
});

/** A target that counts deliveries of one page at the same time, and holds its replies. */
async function startPageTarget(t: TestContext) {
  const recorder = await startRecorder(t);
  const active = new Map<string, number>();
  const seen = { url: recorder.url, begun: new Array<string>(), overlaps: 0, isHeld: true };
  recorder.answer((response, { body }) => {
    const {
      event,
      data: { page_id },
    }: { event: string; data: { page_id: string } } = JSON.parse(body);
    active.set(page_id, (active.get(page_id) ?? 0) + 1);
    if (active.get(page_id) !== 1) seen.overlaps += 1;
    response.once('close', () => active.set(page_id, (active.get(page_id) ?? 0) - 1));
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
    return program;
  };
  const first = await start();
  const send = async (from: number, to: number, url: string) => {
    for (let number = from; number < to; number += 1) {
      for (const page_id of ['p', 'q']) {
        const body = { event: `${page_id} ${number}`, data: { page_id } };
        const { status } = await ask('POST', `${url}/webhook`, { bearer: WEBHOOK_TOKEN, body });
        assert.equal(status, 200);
      }
    }
  };
  await send(0, 20, await first.url('webhook'));
  await until(() => begun.length === 2, 'both pages are being delivered');
  first.signal('SIGKILL');
  await first.ended;
  target.isHeld = false;
  const others = await Promise.all([start(), start()]);
  await Promise.all(
    others.map(async (program, index) => index === 0 && send(20, 40, await program.url('webhook'))),
  );
  assert.equal(begun.length, 2, 'the leases of the killed replica hold');
  await own.sql`update webhook.work set due_at = now() where lease is not null`;
  await own.sql`update webhook.pages set due_at = now()`;
  await untilSql(
    async () => (await own.sql`select from webhook.work`).length === 0,
    'nothing waits',
  );
  assert.equal(target.overlaps, 0);
  for (const page of ['p', 'q']) {
    const expected = [0, ...Array.from({ length: 40 }, (_, number) => number)].map(
      (number) => `${page} ${number}`,
    );
    assert.deepEqual(
      begun.filter((event) => event.startsWith(page)),
      expected,
      'the interrupted one twice, then in order',
    );
  }
});

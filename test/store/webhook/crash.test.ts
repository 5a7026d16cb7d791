import assert from 'node:assert/strict';
import { untilSql } from '../../support/connections.ts';
import { startServer } from '../../support/database-servers.ts';
import {
  type Answer,
  ask,
  type Gatehouse,
  startGatehouse,
  WEBHOOK_TOKEN,
} from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import { until, someTurns, test } from '../../support/until.ts';

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
  const killable = await startServer(t, { durable: true });
  const { url } = await startGatehouse(t, SERVICES, killable.proxy.url);
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
  await killable.start();
  await reach(() => events.size >= before[0] && kept.size >= before[1]);
  load.end();
  await senders;
  await areReady(200);

  for (const { status, json, headers } of refused)
    assert.deepEqual(
      [status, json.error.code, headers.has('retry-after')],
      [503, 'unavailable', true],
    );
  const stored = await killable.query('select delivery_id, id from webhook.events');
  const ids = new Map(stored.map(({ delivery_id, id }) => [delivery_id, id]));
  assert.deepEqual(ids, events, 'every delivery once, under the id that was answered');
  assert.equal(stored.length, events.size);
  const rows = await killable.query('select id from secrets.secrets');
  const secretIds = new Set(rows.map(({ id }) => id));
  for (const id of kept.keys()) assert.ok(secretIds.has(id), id);
  for (const [id, secret] of [...kept].filter((_, index) => index % 20 === 0))
    assert.equal((await load.secrets.decrypt(id, secret)).status, 200);
});

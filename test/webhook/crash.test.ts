import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { startKillablePostgres } from '../support/killable-postgres.ts';
import { type Answer, ask, startGatehouse, WEBHOOK_TOKEN } from '../support/gatehouse.ts';
import { secretsClient } from '../support/secrets.ts';

const SENDERS = 8;

test('acknowledged writes survive kill -9 of the database under load, and the services recover', async (t) => {
  const killable = await startKillablePostgres(t);
  const { url } = await startGatehouse(t, ['secrets', 'webhook'], killable.proxyUrl);
  const secrets = secretsClient(url.secrets);
  const probe = async (service: 'secrets' | 'webhook', path: string) =>
    (await ask('GET', `${url[service]}/${path}`)).status;

  const events = new Map<string, string>();
  const kept = new Map<string, string>();
  const refused: Answer[] = [];
  const load = { goesOn: true };
  const post = (delivery: string) =>
    ask('POST', `${url.webhook}/webhook`, {
      bearer: WEBHOOK_TOKEN,
      body: { event: delivery, data: { page_id: 'p' } },
      headers: { 'webhook-id': delivery },
    });
  /** Repeats a delivery until it is acknowledged, as senders do. */
  async function send(sender: number): Promise<void> {
    for (let number = 0; load.goesOn; number += 1) {
      const delivery = `${sender}-${number}`;
      let answer = await post(delivery);
      for (; answer.status !== 200; answer = await post(delivery)) {
        refused.push(answer);
        await sleep(20);
      }
      events.set(delivery, answer.json.id);
    }
  }
  async function keep(sender: number): Promise<void> {
    for (let number = 0; load.goesOn; number += 1) {
      const answer = await secrets.encrypt({ password: `${sender}-${number}` });
      if (answer.status === 201) kept.set(answer.json.id, answer.json.secret);
      else refused.push(answer);
      if (answer.status !== 201) await sleep(20);
    }
  }
  const senders = Promise.all(
    Array.from({ length: SENDERS }, (_, sender) => (sender % 2 ? send(sender) : keep(sender))),
  );
  const reach = async (isReached: () => boolean) => {
    while (!isReached()) await Promise.race([sleep(5), senders]);
  };

  await reach(() => events.size >= 50 && kept.size >= 50);
  await killable.kill();
  await reach(() => refused.length >= 2 * SENDERS);
  for (const service of ['secrets', 'webhook'] as const) {
    assert.deepEqual([await probe(service, 'readyz'), await probe(service, 'livez')], [503, 200]);
  }
  const [eventsBefore, keptBefore] = [events.size, kept.size];

  await killable.restart();
  await reach(() => events.size >= eventsBefore + 50 && kept.size >= keptBefore + 50);
  load.goesOn = false;
  await senders;
  for (const service of ['secrets', 'webhook'] as const)
    assert.equal(await probe(service, 'readyz'), 200);

  for (const { status, json, headers } of refused) {
    assert.equal(status, 503);
    assert.equal(json.error.code, 'unavailable');
    assert.ok(headers.has('retry-after'));
  }
  const stored = await killable.query((sql) => sql`select delivery_id, id from webhook.events`);
  assert.deepEqual(
    new Map(stored.map(({ delivery_id, id }) => [delivery_id, id])),
    events,
    'every delivery once, under the id that was answered',
  );
  assert.equal(stored.length, events.size);
  const ids = new Set(
    (await killable.query((sql) => sql`select id from secrets.secrets`)).map(({ id }) => id),
  );
  for (const id of kept.keys()) assert.ok(ids.has(id), id);
  for (const [id, secret] of [...kept].filter((_, index) => index % 20 === 0))
    assert.equal((await secrets.decrypt(id, secret)).status, 200);
});

/** `event tail --forward`: a developer's program gets each new event, over HTTP. */
import assert from 'node:assert/strict';
import { after, type TestContext } from 'node:test';
import { startCommand } from '../../support/commands.ts';
import { untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse } from '../../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN, putEvent } from '../../support/inbox.ts';
import { freePorts } from '../../support/ports.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { addToken, openWebhook, signedBy, WEBHOOK_SECRET } from '../../support/senders.ts';
import { test, until } from '../../support/until.ts';

const { url: databaseUrl, sql } = await createDatabase({ after });
const [port = ''] = await freePorts(1);
const base = `http://127.0.0.1:${port}`;
const developer = { GATEHOUSE_WEBHOOK_URL: base, OPERATOR_TOKEN };
const startService = (t: TestContext) =>
  startGatehouse(t, ['webhook'], databaseUrl, { WEBHOOK_PORT: port, WEBHOOK_SECRET });
await addOperator(sql);
const sender = await addToken(openWebhook({ after }, databaseUrl), 'github');

/** Sends one event of GitHub. @returns its id */
async function send(body: string, delivery: string): Promise<string> {
  const answer = await ask('POST', `${base}/webhook?token=${sender.token}`, {
    body,
    headers: {
      ...signedBy('github', body),
      'user-agent': 'GitHub-Hookshot/044aadd',
      'x-github-event': 'push',
      'x-github-delivery': delivery,
    },
  });
  assert.equal(answer.status, 200, answer.text);
  return answer.json.id;
}

/** Starts the command, and waits until it follows. */
async function forward(
  t: TestContext,
  target: string,
  begin = 'Ctrl-C ends it',
  given = developer,
) {
  const tail = startCommand(['event', 'tail', '--forward', target], given);
  t.after(async () => {
    tail.leave();
    await tail.ended;
  });
  await until(() => tail.stderr().includes(begin));
  return tail;
}

test('a program gets each new event once, raw, also across a restart of the service', async (t) => {
  const service = await startService(t);
  const before = await send('{"before":true}', 'before');
  await Promise.all(Array.from({ length: 150 }, () => putEvent(sql)));
  const local = await startRecorder(t);
  local.answer((response, { body }) => reply(body.includes('fails') ? 500 : 200, {})(response));
  const tail = await forward(t, local.url);

  const raw = '{ "commits" :[ "é", "\\u00e9", 1.50, 12345678901234567890 ]}\n';
  const one = await send(raw, 'one');
  const failing = await send('{"fails":true}', 'two');
  const isPrinted = (id: string) => tail.stdout().includes(id);
  await until(() => isPrinted(one) && isPrinted(failing));
  await service.stop();
  await until(() => /does not answer; trying again/.test(tail.stderr()));
  await startService(t);
  const three = await send('{"three":3}', 'three');
  await until(() => isPrinted(three) && /Connected again/.test(tail.stderr()));

  assert.ok(!isPrinted(before), 'only new events');
  const bodies = local.received.map(({ body }) => body);
  assert.deepEqual(bodies.sort(), [raw, '{"fails":true}', '{"three":3}'].sort());
  const { headers = {} } = local.received.find(({ body }) => body === raw) ?? {};
  const names = ['content-type', 'user-agent', 'x-github-event', 'x-github-delivery', 'webhook-id'];
  assert.deepEqual(
    names.map((name) => headers[name]),
    ['application/json', 'GitHub-Hookshot/044aadd', 'push', 'one', one],
  );
  const printed = [...tail.stdout().matchAll(/^\S+Z {2}(\S+) {2}push {2}(\d+) {2}\d+ ms$/gm)];
  const statuses = printed.map(([, id, status]) => [id, status] as const);
  assert.deepEqual(
    new Map(statuses),
    new Map([
      [one, '200'],
      [failing, '500'],
      [three, '200'],
    ]),
  );
  const [tried] = await sql`select from webhook.outcomes union all
    select from webhook.work where attempts > 0`;
  assert.equal(tried, undefined, 'the delivery state is unchanged');
});

test('a program that does not answer is named in the line, and the next event is sent', async (t) => {
  await startService(t);
  const tail = await forward(t, `http://127.0.0.1:${(await freePorts(1)).join()}`);
  const lines = () => tail.stdout().match(/ {2}push {2}no answer {2}\d+ ms\n/g) ?? [];
  let count = 0;
  await untilSql(async () => {
    count += 1;
    await send(`{"warm":${count}}`, `quiet-${count}`);
    return lines().length >= 2;
  }, 'two lines are printed');
});

test('a service that answers 503, 429 or half a reply is called not available', async (t) => {
  for (const answer of [reply(503, {}), reply(429, {}), reply(200, '[{"id":')]) {
    const service = await startRecorder(t);
    service.answer(answer);
    const given = { ...developer, GATEHOUSE_WEBHOOK_URL: service.url };
    const tail = await forward(t, 'http://127.0.0.1:1', 'trying again', given);
    assert.equal(tail.stderr(), `${service.url} is not available; trying again.\n`);
  }
});

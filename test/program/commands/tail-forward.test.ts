/** `event tail --forward`: a developer's program gets each new event, over HTTP. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { variables } from '../../support/gatehouse.ts';
import { addOperator, OPERATOR_TOKEN, putEvent } from '../../support/inbox.ts';
import { freePorts } from '../../support/ports.ts';
import { buildProgram, type Running, startProgram } from '../../support/process.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { SIGNING_SECRETS } from '../../support/senders.ts';
import { test, until } from '../../support/until.ts';

const program = buildProgram();
const { url: databaseUrl, sql } = await createDatabase({ after });
const [port = ''] = await freePorts(1);
const base = `http://127.0.0.1:${port}`;
const environment = {
  ...variables(databaseUrl),
  WEBHOOK_PORT: port,
  WEBHOOK_SECRET: 'webhook-secret-for-tests-0123456789abcdef',
};
const developer = { GATEHOUSE_WEBHOOK_URL: base, OPERATOR_TOKEN };

async function startService(owner: Parameters<typeof startProgram>[0]): Promise<Running> {
  const running = startProgram(owner, program, ['serve', 'webhook'], environment);
  await running.ready('webhook');
  return running;
}

const GITHUB = SIGNING_SECRETS.github;

async function createSender(name: string): Promise<string> {
  const made = await runCommand(
    ['token', 'create', '--name', name, '--source', 'github', '--signing-secret-file', '-'],
    { DATABASE_URL: databaseUrl, WEBHOOK_SECRET: environment.WEBHOOK_SECRET },
    GITHUB,
  );
  assert.equal(made.code, 0, made.stderr);
  return `${base}/webhook?token=${made.stdout.trim()}`;
}

/** Sends one event of GitHub. @returns its id */
async function send(address: string, body: string, delivery: string): Promise<string> {
  const digest = createHmac('sha256', GITHUB).update(body).digest('hex');
  const response = await fetch(address, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'user-agent': 'GitHub-Hookshot/044aadd',
      'x-github-event': 'push',
      'x-github-delivery': delivery,
      'x-hub-signature-256': `sha256=${digest}`,
    },
    body,
  });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return JSON.parse(text).id;
}

test('a program gets each new event once, raw, also across a restart of the service', async (t) => {
  const service = await startService(t);
  await addOperator(sql);
  const address = await createSender('code');
  const before = await send(address, '{"before":true}', 'before');
  const local = await startRecorder(t);
  local.answer((response, { body }) => reply(body.includes('fails') ? 500 : 200, {})(response));
  const tail = startProgram(t, program, ['event', 'tail', '--forward', local.url], developer);
  await until(() => tail.stderr().includes('Ctrl-C ends it'));

  const raw = '{ "commits" :[ "é", "\\u00e9", 1.50, 12345678901234567890 ]}\n';
  const one = await send(address, raw, 'one');
  const failing = await send(address, '{"fails":true}', 'two');
  const isPrinted = (id: string) => tail.stdout().includes(id);
  await until(() => isPrinted(one) && isPrinted(failing));

  service.signal('SIGKILL');
  await until(() => /does not answer; trying again/.test(tail.stderr()));
  await startService(t);
  const three = await send(address, '{"three":3}', 'three');
  await until(() => isPrinted(three) && /Connected again/.test(tail.stderr()));

  const bodies = local.received.map(({ body }) => body);
  assert.equal(new Set(bodies).size, bodies.length, 'nothing was sent twice');
  assert.ok(!bodies.includes('{"before":true}') && !isPrinted(before), 'only new events');
  const [sent] = local.received.filter(({ body }) => body === raw);
  assert.ok(sent, 'the raw bytes');
  const { headers } = sent;
  assert.deepEqual(
    ['content-type', 'user-agent', 'x-github-event', 'x-github-delivery', 'webhook-id'].map(
      (name) => headers[name],
    ),
    ['application/json', 'GitHub-Hookshot/044aadd', 'push', 'one', one],
  );
  assert.match(tail.stdout(), new RegExp(`^\\S+Z {2}${one} {2}push {2}200 {2}\\d+ ms$`, 'm'));
  assert.match(tail.stdout(), new RegExp(`^\\S+Z {2}${failing} {2}push {2}500 {2}\\d+ ms$`, 'm'));
  const [rows] = await sql`
    select (select count(*)::int from webhook.outcomes) as attempted,
      (select count(*)::int from webhook.work where attempts > 0) as tried`;
  assert.deepEqual({ ...rows }, { attempted: 0, tried: 0 }, 'the delivery state is unchanged');

  tail.signal('SIGINT');
  const { code, signal } = await tail.ended;
  assert.deepEqual([code, signal], [null, 'SIGINT']);
});

test('a program that does not answer is named in the line, and the next event is sent', async (t) => {
  await startService(t);
  const address = await createSender('quiet');
  const [closed = ''] = await freePorts(1);
  const words = ['event', 'tail', '--forward', `http://127.0.0.1:${closed}`];
  const tail = startProgram(t, program, words, developer);
  await until(() => tail.stderr().includes('Ctrl-C ends it'));
  const lines = () => tail.stdout().match(/ {2}push {2}no answer {2}\d+ ms\n/g) ?? [];
  let count = 0;
  await untilSql(async () => {
    count += 1;
    await send(address, `{"warm":${count}}`, `quiet-${count}`);
    return lines().length >= 2;
  }, 'two lines are printed');
});

test('events from before the start are not sent, however many', async (t) => {
  await startService(t);
  const address = await createSender('busy');
  await Promise.all(Array.from({ length: 150 }, () => putEvent(sql)));
  const local = await startRecorder(t);
  local.answer(reply(200, {}));
  const tail = startProgram(t, program, ['event', 'tail', '--forward', local.url], developer);
  await until(() => tail.stderr().includes('Ctrl-C ends it'));
  const id = await send(address, '{"busy":true}', 'busy');
  await until(() => tail.stdout().includes(id));
  assert.deepEqual(
    local.received.map(({ body }) => body),
    ['{"busy":true}'],
  );
});

test('a service that answers 503 is called not available', async (t) => {
  const service = await startRecorder(t);
  service.answer(reply(503, {}));
  const given = { ...developer, GATEHOUSE_WEBHOOK_URL: service.url };
  const words = ['event', 'tail', '--forward', 'http://127.0.0.1:1'];
  const tail = startProgram(t, program, words, given);
  await until(() => tail.stderr().includes('trying again'));
  assert.equal(tail.stderr(), `${service.url} is not available; trying again.\n`);
});

test('wrong input ends with what to do', async (t) => {
  const run = (url: string, more: Readonly<Record<string, string>>) =>
    runCommand(['event', 'tail', '--forward', url], { ...developer, ...more });
  assertRefused(await run('ftp://localhost', {}), 2, /--forward must be an http or https URL/);
  assertRefused(await run('nonsense', {}), 2, /--forward must be an http or https URL/);
  assertRefused(await run(base, { OPERATOR_TOKEN: '' }), 1, /token create --role operator/);
  assertRefused(
    await run(base, { GATEHOUSE_WEBHOOK_URL: 'x' }),
    78,
    /GATEHOUSE_WEBHOOK_URL must be/,
  );
  await startService(t);
  const wrong = { OPERATOR_TOKEN: 'not-a-token-of-this-service-0123456789' };
  assertRefused(await run(base, wrong), 1, /OPERATOR_TOKEN is not the token of an operator/);
});

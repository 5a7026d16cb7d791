/** `token target`: it applies to a running service at once, and is refused whole if it is wrong. */
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { untilSql } from '../../support/connections.ts';
import { ask } from '../../support/gatehouse.ts';
import { openInbox } from '../../support/inbox.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { addToken, openWebhook, WEBHOOK_SECRET } from '../../support/senders.ts';
import { until } from '../../support/until.ts';

const directory = makeTemporary(tmpdir(), 'gatehouse-targets');
after(() => removeTemporary(directory));
const settings = { WEBHOOK_SECRET, WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on' };
const inbox = await openInbox({ after }, settings);
const environment = { DATABASE_URL: inbox.databaseUrl, ...settings };
const database = openWebhook({ after }, inbox.databaseUrl);
const target = await startRecorder({ after });
target.answer(reply(200, {}));

const set = (words: readonly string[], given = environment, input = '') =>
  runCommand(['token', 'target', ...words], given, input);

async function send(token: string, event: string): Promise<string> {
  const answer = await ask('POST', `${inbox.url}/webhook`, {
    bearer: token,
    body: { event, data: { page_id: event } },
  });
  assert.equal(answer.status, 200, answer.text);
  return answer.json.id;
}

const statusOf = async (id: string) =>
  (await inbox.call('GET', `/events/${id}`)).json.event.status as string;

async function shown(id: string): Promise<string> {
  const { stdout } = await runCommand(['token', 'list', '--json'], environment);
  const tokens: Array<{ id: string; target: unknown }> = JSON.parse(stdout);
  const token = tokens.find((one) => one.id === id);
  return JSON.stringify(token?.target);
}

test('a target, its events and its signing secret are in force at once, and can be removed', async () => {
  const { id, token } = await addToken(database, 'generic');
  const key = 'a-signing-key-of-at-least-24-bytes';
  const secret = `whsec_${Buffer.from(key).toString('base64')}`;
  const made = await set(
    [id, '--forward', target.url, '--events', 'push, tag*', '--forward-secret-file', '-'],
    environment,
    `${secret}\n`,
  );
  assert.deepEqual(
    { ...made },
    {
      code: 0,
      signal: null,
      stdout: '',
      stderr: `The events of token ${id} go to its own target.\n`,
    },
  );
  assert.ok((await shown(id)).includes(target.url));
  const other = await send(token, 'issues');
  const event = await send(token, 'tagged');
  await until(() => target.received.some(({ headers }) => headers['webhook-id'] === event));
  assert.equal(await statusOf(other), 'skipped');
  const { headers, body } = target.received[0] ?? assert.fail('it has the event');
  const signed = `${event}.${headers['webhook-timestamp']}.${body}`;
  const signature = createHmac('sha256', key).update(signed).digest('base64');
  assert.equal(headers['webhook-signature'], `v1,${signature}`);

  const removed = await set([id, '--default']);
  assert.equal(removed.stderr, `The events of token ${id} go to the default target.\n`);
  assert.equal(await shown(id), 'null');
  const stored = await send(token, 'push');
  assert.equal(await statusOf(stored), 'stored', 'this process has no target');
  assert.equal(target.received.length, 1);
});

test('what is not given stays, and --reset takes it back', async () => {
  const { id } = await addToken(database, 'generic');
  const secret = `whsec_${Buffer.alloc(24, 'k').toString('base64')}`;
  const all = ['--events', 'push', '--timeout', '7s', '--keep-signature'];
  await set(
    [id, '--forward', target.url, ...all, '--forward-secret-file', '-'],
    environment,
    `${secret}\n`,
  );
  const now = async () => JSON.parse(await shown(id));
  const first = { url: target.url, events: ['push'], timeout_seconds: 7, is_signed: true };
  assert.deepEqual(await now(), first);
  const other = `${target.url}/other`;
  await set([id, '--forward', other]);
  assert.deepEqual(await now(), { ...first, url: other });
  await set([id, '--reset', 'events,forward-secret']);
  assert.deepEqual(await now(), { ...first, url: other, events: null, is_signed: false });
});

test('a program takes the place of an address', async () => {
  const { id, token } = await addToken(database, 'generic');
  await set([id, '--forward', `${target.url}/before`]);
  const file = join(directory, `${randomUUID()}.txt`);
  const write = `require('node:fs').writeFileSync(${JSON.stringify(file)}, 'ran')`;
  writeFileSync(file, '');
  const command = JSON.stringify([process.execPath, '-e', write]);
  const made = await set([id, '--command', command, '--timeout', '20s']);
  assert.equal(made.code, 0, made.stderr);
  const event = await send(token, 'push');
  await untilSql(async () => (await statusOf(event)) === 'done', 'the program ran');
  assert.equal(readFileSync(file, 'utf8'), 'ran');
  assert.ok(!target.received.some((request) => request.target === '/before'));
});

test('a wrong target is refused and changes nothing', async () => {
  const { id } = await addToken(database, 'generic');
  const forward = ['--forward', target.url];
  assert.equal((await set([id, ...forward])).code, 0);
  const before = await shown(id);
  const refuse = async (
    code: number,
    said: RegExp,
    words: readonly string[],
    given = environment,
  ) => assertRefused(await set(words, given), code, said);
  await refuse(2, /give what to change, or --default/, [id]);
  await refuse(2, /give what to change, or --default/, [id, ...forward, '--default']);
  await refuse(2, /--forward or --command, not both/, [id, ...forward, '--command', '["true"]']);
  const none = await addToken(database, 'generic');
  for (const words of [['--keep-signature'], ['--timeout', '3s'], ['--events', 'push']]) {
    await refuse(2, /give what to change, or --default/, [id, '--default', ...words]);
    await refuse(1, /needs a URL or a program/, [none.id, ...words]);
  }
  await refuse(2, /--reset takes events, timeout/, [id, '--reset', 'event']);
  await refuse(2, /--timeout/, [id, ...forward, '--timeout', 'soon']);
  await refuse(2, /must be a UUID/, ['mine', ...forward]);
  await refuse(1, /no active token of a sender/, [randomUUID(), ...forward]);
  await refuse(2, /http or https URL/, [id, '--forward', 'ftp://example.org/']);
  await refuse(2, /command/, [id, '--command', 'true']);
  const { WEBHOOK_FORWARD_ALLOW_PRIVATE: _allowed, ...strict } = environment;
  const withoutPrivate = { ...strict, WEBHOOK_FORWARD_ALLOW_PRIVATE: 'off' };
  await refuse(2, /private address/, [id, '--forward', `${target.url}/x`], withoutPrivate);
  const key = ['--forward-secret-file', '-'];
  assertRefused(await set([id, ...forward, ...key], environment, 'short\n'), 2, /secret/);
  assert.equal(await shown(id), before);
});

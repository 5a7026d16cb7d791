/** `token target`: it applies to a running service at once, and is refused whole if it is wrong. */
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { untilSql } from '../../support/connections.ts';
import { makeDirectory } from '../../support/directories.ts';
import { ask } from '../../support/gatehouse.ts';
import { openInbox } from '../../support/inbox.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { addToken, openWebhook, WEBHOOK_SECRET } from '../../support/senders.ts';
import { until } from '../../support/until.ts';

const settings = { WEBHOOK_SECRET, WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on' };
const inbox = await openInbox({ after }, settings);
const environment = { DATABASE_URL: inbox.databaseUrl, ...settings };
const database = openWebhook({ after }, inbox.databaseUrl);
const target = await startRecorder({ after });
target.answer(reply(200, {}));

const set = (words: readonly string[], input = '', given = {}) =>
  runCommand(['token', 'target', ...words], { ...environment, ...given }, input);
const add = () => addToken(database, 'generic');
async function send(bearer: string, event: string): Promise<string> {
  const body = { event, data: { page_id: event } };
  const answer = await ask('POST', `${inbox.url}/webhook`, { bearer, body });
  assert.equal(answer.status, 200, answer.text);
  return answer.json.id;
}
const statusOf = async (id: string) => (await inbox.call('GET', `/events/${id}`)).json.event.status;

/** The target of a token, as the list has it. */
async function shown(id: string): Promise<unknown> {
  const { stdout } = await runCommand(['token', 'list', '--json'], environment);
  const tokens: Array<{ id: string; target: unknown }> = JSON.parse(stdout);
  return tokens.find((one) => one.id === id)?.target;
}
const KEY = 'a-signing-key-of-at-least-24-bytes';
const secret = `whsec_${Buffer.from(KEY).toString('base64')}\n`;

test('a target, its events and its signing secret are in force at once, and can be removed', async () => {
  const { id, token } = await add();
  const words = [id, '--forward', target.url, '--events', 'push, tag*'];
  const { code, stdout, stderr } = await set([...words, '--forward-secret-file', '-'], secret);
  assert.deepEqual([code, stdout], [0, '']);
  assert.equal(stderr, `The events of token ${id} go to its own target.\n`);
  const other = await send(token, 'issues');
  const event = await send(token, 'tagged');
  const received = () => target.received.find(({ headers }) => headers['webhook-id'] === event);
  await until(() => received() !== undefined);
  assert.equal(await statusOf(other), 'skipped');
  const { headers, body } = received() ?? assert.fail();
  const signed = `${event}.${headers['webhook-timestamp']}.${body}`;
  const signature = createHmac('sha256', KEY).update(signed).digest('base64');
  assert.equal(headers['webhook-signature'], `v1,${signature}`);

  const removed = await set([id, '--default']);
  assert.equal(removed.stderr, `The events of token ${id} go to the default target.\n`);
  assert.equal(await shown(id), null);
  const stored = await send(token, 'push');
  assert.equal(await statusOf(stored), 'stored', 'this process has no target');
});

test('what is not given stays, and --reset takes it back', async () => {
  const { id } = await add();
  const all = ['--events', 'push', '--timeout', '7s', '--keep-signature'];
  await set([id, '--forward', target.url, ...all, '--forward-secret-file', '-'], secret);
  const first = { url: target.url, events: ['push'], timeout_seconds: 7, is_signed: true };
  assert.deepEqual(await shown(id), first);
  const url = `${target.url}/other`;
  await set([id, '--forward', url]);
  assert.deepEqual(await shown(id), { ...first, url });
  await set([id, '--reset', 'events,forward-secret']);
  assert.deepEqual(await shown(id), { ...first, url, events: null, is_signed: false });
});

test('a program takes the place of an address', async (t) => {
  const { id, token } = await add();
  const directory = makeDirectory(t, 'targets');
  const file = join(directory, 'ran');
  await set([id, '--forward', `${target.url}/before`]);
  const write = `require('node:fs').writeFileSync(${JSON.stringify(file)}, '')`;
  const command = JSON.stringify([process.execPath, '-e', write]);
  const made = await set([id, '--command', command, '--timeout', '20s']);
  assert.equal(made.code, 0, made.stderr);
  const event = await send(token, 'push');
  await untilSql(async () => (await statusOf(event)) === 'done', 'the program ran');
  assert.ok(existsSync(file));
  assert.ok(!target.received.some((request) => request.target === '/before'));
});

test('a wrong target is refused and changes nothing', async () => {
  const { id } = await add();
  const none = await add();
  const forward = ['--forward', target.url];
  const key = ['--forward-secret-file', '-'];
  assert.equal((await set([id, ...forward])).code, 0);
  const before = await shown(id);
  const WHAT = /give what to change, or --default/;
  const cases: ReadonlyArray<readonly [code: number, said: RegExp, ...words: string[]]> = [
    [2, WHAT, id],
    [2, WHAT, id, ...forward, '--default'],
    [2, WHAT, id, '--default', '--keep-signature'],
    [2, WHAT, id, '--default', '--timeout', '3s'],
    [2, WHAT, id, '--default', '--events', 'push'],
    [1, /needs a URL or a program/, none.id, '--keep-signature'],
    [1, /needs a URL or a program/, none.id, '--events', 'push'],
    [2, /--forward or --command, not both/, id, ...forward, '--command', '["true"]'],
    [2, /--reset takes events, timeout/, id, '--reset', 'event'],
    [2, /--timeout/, id, ...forward, '--timeout', 'soon'],
    [2, /must be a UUID/, 'mine', ...forward],
    [1, /no active token of a sender/, randomUUID(), ...forward],
    [2, /http or https URL/, id, '--forward', 'ftp://example.org/'],
    [2, /command/, id, '--command', 'true'],
    [2, /secret/, id, ...forward, ...key],
  ];
  for (const [code, said, ...words] of cases)
    assertRefused(await set(words, 'short\n'), code, said);
  const strict = await set([id, ...forward], '', { WEBHOOK_FORWARD_ALLOW_PRIVATE: 'off' });
  assertRefused(strict, 2, /private address/);
  assert.deepEqual(await shown(id), before);
});

/** The tour and the tutorials, pasted as they are printed, against real services. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext } from 'node:test';
import { promisify } from 'node:util';
import type { ServiceName } from '../../src/serve.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { makeDirectory } from '../support/directories.ts';
import { documentedMetrics, readDocument } from '../support/documents.ts';
import { AUTH_TOKEN, startGatehouse, variables, WEBHOOK_TOKEN } from '../support/gatehouse.ts';
import { cookieFrom, PORTAL, visitorOf } from '../support/portal.ts';
import { freePorts } from '../support/ports.ts';
import { root, startProcess } from '../support/process.ts';
import { SERVICES } from '../support/settings.ts';
import { test, until } from '../support/until.ts';

const run = promisify(execFile);

const blocksOf = (document: string, language: string): string =>
  [...readDocument(document).matchAll(new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\`$`, 'gm'))]
    .map(([, block = '']) => block)
    .join('\n');

function createDirectory(context: TestContext): string {
  const directory = makeDirectory(context, 'tutorial');
  mkdirSync(join(directory, '.data'));
  writeFileSync(join(directory, '.data/auth-token'), AUTH_TOKEN);
  return directory;
}

/** @returns what the commands print */
async function follow(
  context: TestContext,
  name: ServiceName,
  directory: string,
  settings: Record<string, string> = {},
): Promise<string> {
  const database = await createEmptyDatabase(context);
  const { url } = await startGatehouse(context, [name], database.url, settings);
  const commands = blocksOf(`docs/tutorial-${name}.md`, 'sh')
    .replaceAll(/http:\/\/localhost:(3000|8080|8000)/g, url[name])
    .replaceAll('dist/cli.js', join(root, 'dist/cli.js'));
  const env = { ...process.env, ...variables(database.url), ...settings };
  const { stdout } = await run('sh', ['-e', '-c', commands], { cwd: directory, env });
  return stdout;
}

test('the tutorial of identity names ada to a proxy, and ends with 401', async (context) => {
  const printed = await follow(context, 'identity', createDirectory(context));
  assert.match(printed, /^X-Auth-Username: ada\r?$/m);
  assert.match(printed, /\n401\n$/);
});

test('the tutorial of secrets opens the link once, and shows it in the receipt', async (context) => {
  const settings = { SHARE_PAGES: 'on' };
  const printed = await follow(context, 'secrets', createDirectory(context), settings);
  assert.equal(printed.match(/^The door code is 4711\.$/gm)?.length, 1);
  assert.match(printed, /^exit code 1$/m);
  assert.match(printed, /^status +read$/m);
});

test('the tutorial of webhook delivers a signed event twice', async (context) => {
  const directory = createDirectory(context);
  const [port = ''] = await freePorts(1);
  const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
  writeFileSync(join(directory, '.data/forward-secret'), secret);
  const receiver = blocksOf('docs/tutorial-webhook.md', 'js').replace('5001', port);
  writeFileSync(join(directory, 'receiver.mjs'), receiver);
  const command = [process.execPath, 'receiver.mjs'];
  const { stdout: received } = startProcess(context, command, {}, { cwd: directory });
  const printed = await follow(context, 'webhook', directory, {
    WEBHOOK_SECRET: 'webhook-secret-for-tests-0123456789abcdef',
    WEBHOOK_FORWARD_URL: `http://127.0.0.1:${port}/`,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_FORWARD_SECRET: secret,
  });
  assert.match(printed, /"status":"accepted"/);
  await until(() => received().split('\n').length > 2, 'two deliveries');
  const line = 'push: {"ref": "refs/heads/main", "commits": [{"message": "Fix the door"}]}\n';
  assert.equal(received(), line + line);
});

/** The shop of the tutorial, with a key that the commands of the tutorial have made. */
async function openShop(context: TestContext) {
  const directory = createDirectory(context);
  const database = await createEmptyDatabase(context);
  const { url } = await startGatehouse(context, ['identity'], database.url, {
    ...PORTAL,
    SELF_DELETION: 'on',
  });
  const document = 'docs/tutorial-backends.md';
  const commands = blocksOf(document, 'sh').replaceAll('dist/cli.js', join(root, 'dist/cli.js'));
  const env = { ...process.env, ...variables(database.url) };
  const listed = await run('sh', ['-e', '-c', commands], { cwd: directory, env });
  assert.match(listed.stdout, /shop .*provision, read, verify, orders:read/);

  const [port = ''] = await freePorts(1);
  const program = blocksOf(document, 'js').replace('5002', port);
  assert.ok(program.split('\n').length <= 120);
  // No password but those that people type.
  assert.doesNotMatch(program, /admin/i);
  const localhost = 'http://localhost:3000';
  writeFileSync(join(directory, 'shop.mjs'), program.replace(localhost, url.identity));
  const running = startProcess(context, [process.execPath, 'shop.mjs'], {}, { cwd: directory });
  const shop = `http://127.0.0.1:${port}`;
  await running.prints(/open/);

  let cookie = '';
  const send = async (path: string, fields: Record<string, string>) => {
    const body = new URLSearchParams(fields);
    const reply = await fetch(shop + path, { method: 'POST', body, headers: { cookie } });
    cookie = reply.headers.get('set-cookie')?.split(';')[0] ?? cookie;
    return /^<p>(.*)<\/p>/.exec(await reply.text())?.[1] ?? '';
  };
  return { shop, identity: url.identity, send, printed: running.stdout };
}

test('the program of the tutorial about backends signs up, resets, makes keys and deletes', async (context) => {
  const { shop, identity, send, printed } = await openShop(context);
  const ada = { username: 'ada', email: 'ada@example.org', password: 'a door code of my own' };
  assert.match(await send('/sign-up', { ...ada, password: '12345678' }), /^password /);
  assert.equal(await send('/sign-up', ada), 'You are logged in.');
  assert.match(await send('/sign-up', ada), /is taken by another user/);
  assert.match(await send('/login', { ...ada, password: 'wrong' }), /wrong/);

  const made = /key:\S+/.exec(await send('/keys', { name: 'a script' }))?.[0] ?? '';
  const orders = async (key: string) =>
    (await fetch(`${shop}/orders`, { headers: { 'x-api-key': key } })).status;
  assert.deepEqual([await orders(made), await orders('key:nonsense')], [200, 401]);

  const same = await send('/forgot', { email: 'nobody@example.org' });
  assert.equal(await send('/forgot', { email: 'ADA@example.org' }), same);
  await until(() => printed().includes('#'), 'the link');
  const [, to, token = ''] = /to (\S+): .*#(\S+)/.exec(printed()) ?? [];
  assert.equal(to, ada.email);
  const visit = visitorOf(identity);
  const opened = await visit('/link', { fields: { token } });
  const password = 'another door code of my own';
  const step = cookieFrom(opened, '__Host-gatehouse-pending');
  const chosen = await visit('/login/password', {
    fields: { password, return_to: '' },
    cookie: step,
  });
  assert.equal(chosen.status, 200, chosen.text);
  assert.match(await send('/login', ada), /wrong/);
  assert.equal(await send('/login', { ...ada, password }), 'You are logged in.');

  assert.match(await send('/delete', { password: 'wrong' }), /wrong/);
  assert.equal(await send('/delete', { password }), 'Your account is deleted.');
  assert.equal(await orders(made), 401);
  assert.match(await send('/login', { ...ada, password }), /wrong/);
});

/** The values of a text that holds one JSON value after the other, each from a line's start on. */
const jsonValues = (text: string): unknown[] =>
  text
    .trim()
    .split(/\n(?=[^\s}\]])/)
    .map((value) => JSON.parse(value));

/**
 * Replaces what differs from run to run. A token is recognized by its length. Error messages are
 * not compared.
 */
function comparable(value: unknown): unknown {
  const withoutMessage = (key: string, member: unknown): unknown =>
    key === 'error' ? { ...Object(member), message: '…' } : member;
  const text = JSON.stringify(value, withoutMessage);
  return JSON.parse(
    text
      .replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, '<uuid>')
      .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, '<time>')
      .replaceAll(/"([A-Za-z0-9_-]{43}|key:[A-Za-z0-9_-]{49})"/g, '"<key>"')
      .replaceAll(/"curl\/[0-9.]+"/g, '"curl"'),
  );
}

/** @returns each series of Prometheus's text format as its metric's name, type and labels */
function seriesOf(text: string): string[] {
  const types = new Map(
    [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name, type]),
  );
  const all = text.matchAll(/^([a-z0-9_]+)(?:\{(.*)\})? \S+$/gm);
  const series = [...all].map(([, name = '', labels = '']) => {
    const family = types.has(name) ? name : name.replace(/_(bucket|sum|count)$/, '');
    const names = labels.match(/[a-z_]+(?==")/g)?.filter((label) => label !== 'le') ?? [];
    return `${family} ${types.get(family)} ${names.join()}`;
  });
  return [...new Set(series)];
}

test('every command of the tour gets the printed reply, and the metrics are as documented', async (context) => {
  const database = await createEmptyDatabase(context);
  const directory = createDirectory(context);
  writeFileSync(join(directory, '.data/webhook-token'), WEBHOOK_TOKEN);
  const { url } = await startGatehouse(context, SERVICES, database.url, {
    ADMIN_PASSWORD: undefined,
    FIRST_CREDENTIALS_DIR: join(directory, '.data'),
    SHARE_PAGES: 'on', // as `make start` does
  });
  const pages = ['tour', 'secrets', 'sessions', 'identity', 'audit'];
  const tour = pages.map((name) => readDocument(`docs/${name}.md`)).join('\n');
  const steps = [...tour.matchAll(/```sh\n([\s\S]*?)```(?:\n```json\n([\s\S]*?)```)?/g)];
  assert.ok(steps.length >= 10, 'the tour has its steps');
  // One shell for all steps, as in a terminal.
  const script = steps
    .map(([, commands = '']) => `${commands}echo ----`)
    .join('\n')
    .replace('http://localhost:3000', url.identity)
    .replace('http://localhost:8080', url.secrets)
    .replace('http://localhost:8000', url.webhook);
  const { stdout } = await run('sh', ['-c', script], { cwd: directory });
  const replies = stdout.split('----\n').slice(0, -1);
  assert.deepEqual(
    replies.map((reply) => jsonValues(reply || 'null').map(comparable)),
    steps.map(([, , reply = 'null']) => jsonValues(reply).map(comparable)),
  );
  const series = seriesOf(await (await fetch(`${url.metrics}/metrics`)).text());
  const documented = documentedMetrics().map(
    ({ name, type, labels }) => `${name} ${type} ${labels.join()}`,
  );
  assert.deepEqual(
    series.filter((one) => !documented.includes(one)),
    [],
    'metrics with other types or labels',
  );
  assert.ok(series.length >= 18, `the tour leads to most metrics, not only ${series.length}`);
});

/** The log: its form, what of probes it has, and the bytes that a request writes to it. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { untilSql } from '../support/connections.ts';
import { compose } from '../support/deploy.ts';
import { rowsUnder } from '../support/documents.ts';
import {
  ADMIN_PASSWORD,
  ask,
  type AskOptions,
  AUTH_TOKEN,
  type Gatehouse,
  launch,
  logIn,
  startGatehouse,
  WEBHOOK_TOKEN,
} from '../support/gatehouse.ts';
import { root, startProgram } from '../support/process.ts';
import { startOnTerminal, withoutTerminal } from '../support/terminal.ts';
import { test, until } from '../support/until.ts';

const gatehouse = await launch(['identity', 'secrets', 'webhook'], {
  INSTANCE_NAME: '4b1d09b1c2f4', // as long as the host name of a container
  TRUSTED_PROXIES: '127.0.0.1',
  WEBHOOK_HANDLER: join(root, 'test/support/handler.mjs'),
});
const { identity, secrets, webhook } = gatehouse;
const verify = `${identity}/api/auth/verify`;
const store = { bearer: AUTH_TOKEN, body: { password: 'x' } };
const session = await logIn(identity);
const { json: stored } = await ask('POST', `${secrets}/api/store/encrypt`, store);

type Kind = readonly [lines: number, method: string, url: string, options: AskOptions];
/** By the words of the document. */
const KINDS: Readonly<Record<string, Kind>> = {
  'session check': [1, 'GET', verify, { bearer: session }],
  'wrong credential': [2, 'GET', verify, { bearer: 'session:none' }],
  login: [
    1,
    'POST',
    `${identity}/api/auth/login`,
    { body: { username: 'admin', password: ADMIN_PASSWORD } },
  ],
  'secret stored': [2, 'POST', `${secrets}/api/store/encrypt`, store],
  'secret read': [
    2,
    'POST',
    `${secrets}/api/store/decrypt?id=${stored.id}`,
    { bearer: AUTH_TOKEN, body: { secret: stored.secret } },
  ],
  'event accepted and delivered': [
    2,
    'POST',
    `${webhook}/webhook`,
    { bearer: WEBHOOK_TOKEN, body: { event: 'returns', data: { page_id: '1' } } },
  ],
};

const linesOf = (id: string) => gatehouse.stdout().match(new RegExp(`^.*${id}.*$`, 'gm')) ?? [];
const bytesOf = (lines: readonly string[]) => lines.map((line) => `${line}\n`).join('').length;

/** What Docker stores of a line: the text in JSON, the stream, and a time with nanoseconds. */
const inDocker = (line: string) =>
  `${JSON.stringify({ log: `${line}\n`, stream: 'stdout', time: '2026-01-01T00:00:00.000000000Z' })}`;

const documented = new Map(
  rowsUnder('docs/observability.md', 'log lines of').map(([kind = '', ...cells]) => [kind, cells]),
);
let most = 0;

const environment = {
  INSTANCE_NAME: 'hooks-1',
  WEBHOOK_VARIANT: 'plain',
  WEBHOOK_TOKEN,
  HOST: '127.0.0.1',
  PORT: '0',
};
const TEXT = /^\d\d:\d\d:\d\d\.\d{3} INFO {2}webhook {2}ready app=gatehouse-webhook$/m;
const JSON_LINE =
  /^\{"time":"[^"]+","level":"info","instance":"hooks-1","version":"[0-9.]+","service":"webhook","app":"gatehouse-webhook","message":"ready"\}$/m;

test(
  'on a terminal, the log is text unless LOG_FORMAT is json',
  async (t) => {
    const assertForm = async (format: string, expected: RegExp) => {
      const command = [process.execPath, `${root}/dist/cli.js`, 'serve', 'webhook'];
      const terminal = startOnTerminal(t, command, { ...environment, LOG_FORMAT: format });
      await terminal.sees('ready');
      terminal.interrupts();
      const { code, shown } = await terminal.left;
      assert.equal(code, 0, shown);
      assert.match(shown, expected, format);
    };
    await Promise.all([assertForm('auto', TEXT), assertForm('json', JSON_LINE)]);
  },
  withoutTerminal,
);

test('in a pipe, the log is JSON unless LOG_FORMAT is text', async (t) => {
  for (const [format, expected] of [
    ['auto', JSON_LINE],
    ['text', TEXT],
  ] as const) {
    const given = { ...environment, LOG_FORMAT: format };
    await startProgram(t, root, ['serve', 'webhook'], given).prints(expected);
  }
});

test('why serve ended has the form of the log', async (t) => {
  const cases = [
    [
      78,
      'hooks-1',
      /^LOG_LEVEL must be one of debug, info, warn, error, silent\.$/,
      { LOG_LEVEL: 'loud' },
    ],
    [78, hostname(), /^INSTANCE_NAME must be one line of at most 300/, { INSTANCE_NAME: 'a\nb' }],
    // No machine has this address (RFC 5737).
    [
      1,
      'hooks-1',
      /^webhook cannot listen on 192\.0\.2\.1:0 \(EADDRNOTAVAIL\)/,
      { HOST: '192.0.2.1' },
    ],
    [2, 'hooks-1', /^serve: "letterbox" is not one of /, {}, 'letterbox'],
  ] as const;
  const ended = cases.map(async ([code, instance, said, given, service = 'webhook']) => {
    const running = startProgram(t, root, ['serve', service], { ...environment, ...given });
    assert.equal((await running.ended).code, code);
    const [{ level, instance: name, version, message } = {}, ...others] = running.notes();
    assert.deepEqual(
      [level, name, typeof version, others],
      ['error', instance, 'string', []],
      running.stderr(),
    );
    assert.match(String(message), said);
  });
  await Promise.all(ended);
  const given = { ...environment, LOG_LEVEL: 'loud', LOG_FORMAT: 'text' };
  const text = startProgram(t, root, ['serve', 'webhook'], given);
  await text.ended;
  assert.deepEqual(text.notes(), []);
  assert.match(text.stderr(), /^gatehouse: LOG_LEVEL must be one of [^\n]*\n$/);
});

/** Load balancers and supervisors probe every few seconds: the log has the changes. */
const requestsOf = ({ log }: Gatehouse) =>
  log().flatMap(({ message, level, route, status }) =>
    message === 'request' ? `${level} ${route} ${status}` : [],
  );

const PROBED = ['GET /livez 200', 'GET /readyz 200', 'GET /metrics 200'];
const OTHERS = ['GET / 200', '(none) 404'];
const ALL = OTHERS.map((one) => `info ${one}`);
for (const [settings, expected] of [
  [{}, ALL],
  [{ LOG_LEVEL: 'debug' }, [...PROBED.map((one) => `debug ${one}`), ...ALL]],
  [{ LOG_PROBES: 'on' }, [...PROBED.map((one) => `info ${one}`), ...ALL]],
  [{ LOG_REQUESTS: 'errors' }, ['info (none) 404']],
  [{ LOG_REQUESTS: 'none' }, []],
  [
    { LOG_REQUESTS: 'none', LOG_LEVEL: 'debug' },
    [...PROBED, ...OTHERS].map((one) => `debug ${one}`),
  ],
] as const) {
  test(`probes and requests in the log with ${JSON.stringify(settings)}`, async (t) => {
    const plain = { WEBHOOK_VARIANT: 'plain', LOG_PROBES: undefined, ...settings };
    const own = await startGatehouse(t, ['webhook'], undefined, plain);
    const { webhook, metrics } = own.url;
    for (const path of ['/livez', '/readyz']) await ask('GET', webhook + path);
    await ask('GET', `${metrics}/metrics`);
    await ask('GET', `${webhook}/`, { headers: { accept: 'text/html' } });
    await ask('GET', `${webhook}/none`);
    await own.stop();
    assert.deepEqual(requestsOf(own), expected);
  });
}

test('failed probes are not in the log', async (t) => {
  const away = 'postgres://postgres@127.0.0.1:1/none';
  const given = { LOG_PROBES: undefined };
  const own = await startGatehouse(t, ['secrets'], away, given, 'listening');
  assert.equal((await ask('GET', `${own.url.secrets}/readyz`)).status, 503);
  await own.stop();
  assert.deepEqual(requestsOf(own), []);
});

test('the log has one line when a service is no longer ready, and one when it is ready again', async (t) => {
  const own = await launch(['secrets'], { LOG_PROBES: undefined }, t);
  const probe = async () => (await ask('GET', `${own.secrets}/readyz`)).status;
  for (const [from, to, status] of [
    ['migrations', 'away', 503],
    ['away', 'migrations', 200],
  ] as const) {
    await own.sql`alter table secrets.${own.sql(from)} rename to ${own.sql(to)}`;
    await untilSql(async () => (await probe()) === status, 'the next check, after a second');
    for (let more = 0; more < 3; more += 1) assert.equal(await probe(), status);
  }
  const lines = own.log().map(({ level, message }) => `${level} ${message}`);
  const said = lines.filter((line) => /request|not ready|ready again/.test(line));
  assert.deepEqual(said, ['warn not ready', 'info ready again']);
});

for (const [kind, [count, method, url, options]] of Object.entries(KINDS)) {
  test(`observability.md has the bytes of the log for each ${kind}`, async () => {
    const id = randomUUID();
    const headers = { 'x-forwarded-for': '198.51.100.200', 'x-request-id': id };
    const { status } = await ask(method, url, { headers, ...options });
    assert.equal(status < 400, kind !== 'wrong credential');
    await until(() => linesOf(id).length >= count, `${count} lines`);
    const lines = linesOf(id);
    assert.equal(lines.length, count);
    const remaining = lines.filter((line) => !/"message":"request".*"status":[23]/.test(line));
    const [shown = 0, mebibytes, shownLess = 0] = documented.get(kind)?.map(Number) ?? [];
    // The digits of a duration vary.
    const isClose = (given: number, measured: number) => Math.abs(given - measured) <= 8;
    assert.ok(isClose(shown, bytesOf(lines)), `${shown}, not ${bytesOf(lines)}`);
    assert.ok(isClose(shownLess, bytesOf(remaining)), `${shownLess}, not ${bytesOf(remaining)}`);
    assert.equal(mebibytes, Math.round((shown * 86_400) / 1e6));
    most = Math.max(most, bytesOf(lines.map(inDocker)));
  });
}

test('Compose keeps a day of ten requests a second of each kind', () => {
  const [, size, files] =
    /logging: &logging\n[^]*?max-size: (\d+)m\n +max-file: "(\d+)"\n +compress: "true"\n/.exec(
      compose,
    ) ?? [];
  // The oldest file is removed as a whole.
  const kept = (Number(files) - 1) * Number(size) * 1e6;
  assert.ok(kept >= most * 10 * 86_400, `${kept} of ${most * 10 * 86_400}`);
});

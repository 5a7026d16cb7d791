/** The bytes that a request writes to the log, and how much of it Compose keeps. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { compose } from '../support/deploy.ts';
import { rowsUnder } from '../support/documents.ts';
import { ask, AUTH_TOKEN, launch, logIn, WEBHOOK_TOKEN } from '../support/gatehouse.ts';
import { root } from '../support/process.ts';
import { test, until } from '../support/until.ts';

const gatehouse = await launch(['identity', 'secrets', 'webhook'], {
  INSTANCE_NAME: '4b1d09b1c2f4', // as long as the host name of a container
  TRUSTED_PROXIES: '127.0.0.1',
  WEBHOOK_HANDLER: join(root, 'test/support/handler.mjs'),
});
const session = await logIn(gatehouse.identity);
const verify = `${gatehouse.identity}/api/auth/verify`;
const store = `${gatehouse.secrets}/api/store`;
const { json: stored } = await ask('POST', `${store}/encrypt`, {
  bearer: AUTH_TOKEN,
  body: { password: 'x' },
});

/** By the words of the document: how many lines, and method, address, bearer and body. */
const KINDS: Readonly<
  Record<string, readonly [number, string, string, (string | undefined)?, unknown?]>
> = {
  'session check': [1, 'GET', verify, session],
  'wrong credential': [2, 'GET', verify, 'session:none'],
  login: [
    1,
    'POST',
    `${gatehouse.identity}/api/auth/login`,
    undefined,
    { username: 'admin', password: 'correct-horse-battery-staple' },
  ],
  'secret stored': [2, 'POST', `${store}/encrypt`, AUTH_TOKEN, { password: 'x' }],
  'secret read': [
    2,
    'POST',
    `${store}/decrypt?id=${stored.id}`,
    AUTH_TOKEN,
    { secret: stored.secret },
  ],
  'event accepted and delivered': [
    2,
    'POST',
    `${gatehouse.webhook}/webhook`,
    WEBHOOK_TOKEN,
    { event: 'returns', data: { page_id: '1' } },
  ],
};

const linesOf = (id: string) =>
  gatehouse
    .stdout()
    .split('\n')
    .filter((line) => line.includes(id));
const bytesOf = (lines: readonly string[]) => lines.join('\n').length + 1;

/** What Docker stores of a line: the text in JSON, the stream, and a time with nanoseconds. */
const inDocker = (line: string) =>
  `${JSON.stringify({ log: `${line}\n`, stream: 'stdout', time: '2026-01-01T00:00:00.000000000Z' })}`;

const documented = new Map(
  rowsUnder('docs/observability.md', 'log lines of').map(([kind = '', ...cells]) => [kind, cells]),
);
let most = 0;

for (const [kind, [count, method, url, bearer, body]] of Object.entries(KINDS)) {
  test(`observability.md has the bytes of the log for each ${kind}`, async () => {
    const id = randomUUID();
    const headers = { 'x-forwarded-for': '198.51.100.200', 'x-request-id': id };
    const { status } = await ask(method, url, { headers, body, ...(bearer ? { bearer } : {}) });
    assert.equal(status < 400, kind !== 'wrong credential');
    await until(() => linesOf(id).length >= count, `${count} lines`);
    const lines = linesOf(id);
    const remaining = lines.filter((line) => !/"message":"request".*"status":[23]/.test(line));
    const less = remaining.length === 0 ? 0 : bytesOf(remaining);
    const [shown, mebibytes, shownLess] = documented.get(kind)?.map(Number) ?? [];
    // The digits of a duration vary.
    for (const [given, measured] of [
      [shown, bytesOf(lines)],
      [shownLess, less],
    ] as const)
      assert.ok(Math.abs(Number(given) - measured) <= 8, `${given}, not ${measured}`);
    assert.equal(mebibytes, Math.round((Number(shown) * 86_400) / 1e6));
    assert.equal(lines.length, count);
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

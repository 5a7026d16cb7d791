/** Requests of pages of other sites, as browsers send them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ADMIN_PASSWORD, ask, launch } from '../../../support/gatehouse.ts';
import { exchange } from '../../../support/socket.ts';

const { url, sql } = await launch(['identity', 'secrets', 'webhook'], {
  TRUSTED_PROXIES: '127.0.0.7',
});
const body = (password: string) => JSON.stringify({ username: 'admin', password });

/** One login with exactly these headers. */
function tryLogin(
  password: string,
  headers: readonly string[],
  from = '127.0.0.1',
  host = new URL(url.identity).host,
) {
  const text = body(password);
  const head = [
    'POST /api/auth/login HTTP/1.1',
    `Host: ${host}`,
    'Content-Type: text/plain',
    `Content-Length: ${text.length}`,
    ...headers,
  ];
  return exchange(url.identity, head, text, from);
}

const FOREIGN: ReadonlyArray<readonly string[]> = [
  ['Sec-Fetch-Site: cross-site', 'Origin: https://evil.example'],
  ['Sec-Fetch-Site: cross-site'],
  ['Sec-Fetch-Site: same-site', 'Origin: https://neighbor.gatehouse.test'],
  ['Sec-Fetch-Site: same-origin, cross-site'],
  ['Origin: https://evil.example'],
  ['Origin: null'],
  ['Origin: garbage'],
  ['Origin: http://127.0.0.1:1'],
  ['Origin: https://evil.example', 'X-Forwarded-Host: evil.example'],
];

test('a login from a page of another site gets 403 and does not count as an attempt', async () => {
  for (const headers of [...FOREIGN, ...FOREIGN]) {
    const { status, json } = await tryLogin('wrong', headers);
    assert.deepEqual([status, json.error.code], [403, 'cross_site'], headers.join(', '));
  }
  const [row] = await sql`select count(*) as n from identity.throttles`;
  assert.equal(Number(row?.n), 0, 'no attempt is stored');
  assert.equal((await tryLogin(ADMIN_PASSWORD, [])).status, 200);
  const metrics = await ask('GET', `${url.metrics}/metrics`);
  assert.match(
    metrics.text,
    /gatehouse_requests_refused_total\{service="identity",route="POST \/api\/auth\/login",reason="cross_site"\} 18$/m,
  );
});

test('programs, pages of the same origin and proxies are served', async () => {
  const own = new URL(url.identity).host;
  const allowed: ReadonlyArray<
    readonly [headers: readonly string[], from?: string, host?: string]
  > = [
    [[]],
    [['Sec-Fetch-Site: same-origin', `Origin: http://${own}`]],
    [['Sec-Fetch-Site: none']],
    [['Sec-Fetch-Site: same-origin', 'Origin: null']],
    [[`Origin: http://${own}`]],
    // Behind a proxy that terminates TLS, with its name in Host or in X-Forwarded-Host.
    [['Origin: https://id.example'], '127.0.0.1', 'id.example'],
    [['Origin: https://id.example'], '127.0.0.1', 'ID.example:443'],
    [['Origin: https://id.example:8443'], '127.0.0.1', 'id.example:8443'],
    [['Origin: https://id.example', 'X-Forwarded-Host: id.example'], '127.0.0.7'],
  ];
  for (const [headers, from, host] of allowed) {
    const { status } = await tryLogin(ADMIN_PASSWORD, headers, from, host);
    assert.equal(status, 200, `${headers.join(', ')} to ${host}`);
  }
});

test('the host of an absolute target is the one that an origin is compared with', async () => {
  const text = body(ADMIN_PASSWORD);
  const login = (target: string) =>
    exchange(
      url.identity,
      [
        `POST ${target} HTTP/1.1`,
        'Host: evil.example',
        'Origin: https://id.example',
        `Content-Length: ${text.length}`,
      ],
      text,
    );
  assert.equal((await login('http://id.example/api/auth/login')).status, 200);
  assert.equal((await login('/api/auth/login')).status, 403);
});

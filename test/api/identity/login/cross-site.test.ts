/** Requests of pages of other sites, as browsers send them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ADMIN_PASSWORD, ask, launch } from '../../../support/gatehouse.ts';
import { exchange } from '../../../support/socket.ts';

const { identity, metrics, sql } = await launch(['identity'], { TRUSTED_PROXIES: '127.0.0.7' });
const own = new URL(identity).host;

/** One login with exactly these headers. */
function tryLogin(
  password: string,
  headers: readonly string[],
  { from = '127.0.0.1', host = own, target = '/api/auth/login' } = {},
) {
  const body = JSON.stringify({ username: 'admin', password });
  const head = [`POST ${target} HTTP/1.1`, `Host: ${host}`, `Content-Length: ${body.length}`];
  return exchange(identity, [...head, ...headers], body, from);
}

const FOREIGN: ReadonlyArray<readonly string[]> = [
  ['Sec-Fetch-Site: cross-site', `Origin: http://${own}`],
  ['Sec-Fetch-Site: same-site', 'Origin: https://neighbor.gatehouse.test'],
  ['Sec-Fetch-Site: same-origin, cross-site'],
  ['Origin: https://evil.example'],
  ['Origin: null'],
  ['Origin: garbage'],
  ['Origin: http://127.0.0.1:1'],
  ['Origin: https://evil.example', 'X-Forwarded-Host: evil.example'],
];

test('a login from a page of another site gets 403 and does not count as an attempt', async () => {
  for (const headers of FOREIGN) {
    const { status, json } = await tryLogin('wrong', headers);
    assert.deepEqual([status, json.error.code], [403, 'cross_site'], headers.join(', '));
  }
  assert.equal((await sql`select from identity.throttles`).length, 0, 'no attempt is stored');
  const { text } = await ask('GET', `${metrics}/metrics`);
  const series = 'service="identity",route="POST /api/auth/login",reason="cross_site"';
  const counted = `\ngatehouse_requests_refused_total{${series}} ${FOREIGN.length}\n`;
  assert.ok(text.includes(counted), text);
});

const ALLOWED: ReadonlyArray<
  readonly [headers: readonly string[], more?: Parameters<typeof tryLogin>[2]]
> = [
  [[]],
  [['Sec-Fetch-Site: same-origin', 'Origin: null']],
  [['Sec-Fetch-Site: none']],
  [[`Origin: http://${own}`]],
  // Behind a proxy that terminates TLS, with its name in Host or in X-Forwarded-Host.
  [['Origin: https://id.example'], { host: 'id.example' }],
  [['Origin: https://id.example'], { host: 'ID.example:443' }],
  [['Origin: https://id.example:8443'], { host: 'id.example:8443' }],
  [['Origin: https://id.example', 'X-Forwarded-Host: id.example'], { from: '127.0.0.7' }],
  // The host of an absolute target takes the place of the header.
  [
    ['Origin: https://id.example'],
    { host: 'evil.example', target: 'http://id.example/api/auth/login' },
  ],
];

test('programs, pages of the same origin and proxies are served', async () => {
  for (const [headers, more] of ALLOWED) {
    const { status } = await tryLogin(ADMIN_PASSWORD, headers, more);
    assert.equal(status, 200, JSON.stringify([headers, more]));
  }
  const evil = await tryLogin('', ['Origin: https://id.example'], { host: 'evil.example' });
  assert.equal(evil.status, 403);
});

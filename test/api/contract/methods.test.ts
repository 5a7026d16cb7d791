/** Under which methods and spellings of its path each row of each variant answers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Call } from '../../support/calls.ts';
import {
  assertRefused,
  nameOf,
  pathOf,
  type Row,
  send,
  start,
  VARIANTS,
} from '../../support/contract.ts';
import { type Answer, ask } from '../../support/gatehouse.ts';

const METHODS = ['DELETE', 'GET', 'HEAD', 'PATCH', 'POST', 'PUT'];
/** Headers that differ from reply to reply, or tell how the body is sent. */
const OWN = /^(date|x-request-id|set-cookie|content-length|transfer-encoding)$/;

const running = await start();
const patternsOf = (rows: readonly Row[]) => [...new Set(rows.map(({ pattern }) => pattern))];
const ALL = patternsOf(VARIANTS.flatMap(({ served }) => served));
const codeOf = ({ json }: Answer) => json?.error?.code;

for (const { name, rows, served, url } of running) {
  const call: Call = (method, path, options) => ask(method, url + path, options);
  test(`${name}: each path allows the methods of its rows, and names them`, async () => {
    for (const pattern of patternsOf(rows)) {
      const own = rows.filter((row) => row.pattern === pattern).map(({ method }) => method);
      // The address of a form leads to its page.
      const isForm = /^\/(login|account|oidc\/(consent|logout\/confirm))/.test(pattern);
      const hasGet = isForm || own.includes('GET');
      const allowed = [...new Set([...own, ...(hasGet ? ['GET', 'HEAD'] : [])])];
      // A proxy that passes the client's method on would take 204 for "admitted".
      const isProxyCheck = pattern === '/api/auth/verify';
      const allow = [...allowed, ...(isProxyCheck ? [] : ['OPTIONS'])].sort().join(', ');
      for (const method of ['OPTIONS', ...METHODS].filter((one) => !allowed.includes(one))) {
        const answer = await ask(method, url + pathOf(pattern));
        const isListed = method === 'OPTIONS' && !isProxyCheck;
        const status = isListed ? 204 : 405;
        const code = isListed || method === 'HEAD' ? undefined : 'method_not_allowed';
        assert.deepEqual(
          [answer.status, answer.headers.get('allow'), codeOf(answer)],
          [status, allow, code],
          `${method} ${pattern}`,
        );
      }
    }
  });

  test(`${name}: a trailing slash makes no difference`, async () => {
    for (const row of rows) {
      const { pattern: given } = row;
      const pattern = given.endsWith('/') ? given.slice(0, -1) : `${given}/`;
      const one = await send(call, row);
      const other = await send(call, { ...row, pattern });
      assert.deepEqual([other.status, codeOf(other)], [one.status, codeOf(one)], nameOf(row));
    }
  });

  test(`${name}: HEAD gets the status and the headers of GET, without a body`, async () => {
    for (const row of rows.filter(({ method }) => method === 'GET')) {
      const get = await send(call, row);
      const head = await send(call, { ...row, method: 'HEAD' });
      const kept = ({ headers }: Answer) => [...headers].filter(([one]) => !OWN.test(one));
      assert.deepEqual([head.status, head.text], [get.status, ''], nameOf(row));
      assert.deepEqual(kept(head), kept(get), nameOf(row));
    }
  });

  test(`${name}: paths of other variants and services do not exist`, async () => {
    const forms = served.map(({ pattern }) => pattern.replace(/\{\w+\}/g, '[^/]+'));
    const own = new RegExp(`^(${forms.join('|')})/?$`);
    for (const path of ALL.map((one) => pathOf(one)).filter((one) => !own.test(one))) {
      const answer = await ask('GET', url + path);
      assert.deepEqual([answer.status, codeOf(answer)], [404, 'no_such_path'], path);
    }
  });

  test(`${name}: a page of another site changes nothing`, async () => {
    // What a sender of events sends carries a credential of its own; other rows pass it on as GET.
    const isPassed = ({ method, pattern, anySite = false }: Row) =>
      method === 'GET' || pattern === '/webhook' || anySite;
    for (const row of rows.filter((one) => !isPassed(one))) {
      for (const headers of [{ 'sec-fetch-site': 'cross-site' }, { origin: 'https://evil.test' }]) {
        const answer = await send(call, row, { headers: { ...headers } });
        assertRefused(answer, row, [403, 'cross_site'], [], JSON.stringify(headers));
      }
    }
  });
}

/**
 * What each row answers without its database, under other methods and spellings of its path, to
 * another site, and after too many wrong credentials.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createApiKey, createSessionToken } from '../../../src/identity/token.ts';
import { type Call, callsOf } from '../../support/calls.ts';
import { stopClock } from '../../support/clock.ts';
import {
  assertRefused,
  bearer,
  isOfProgram,
  isPage,
  nameOf,
  pathOf,
  type Row,
  send,
  start,
  VARIANTS,
} from '../../support/contract.ts';
import { type Answer, ask, startGatehouse } from '../../support/gatehouse.ts';

const NOWHERE = 'postgres://nobody:nothing@127.0.0.1:1/nowhere';
const TOKEN = 'A'.repeat(43);
const COOKIE = ['__Host-gatehouse', '__Host-gatehouse-pending', '__Secure-gatehouse']
  .map((name) => `${name}=${TOKEN}`)
  .join('; ');

/** Identity must answer 500, the others 503. */
const UNAVAILABLE = {
  identity: [500, 'service_failed'],
  secrets: [503, 'unavailable'],
  webhook: [503, 'unavailable'],
} as const;

const stored = VARIANTS.filter(({ environment }) => environment.WEBHOOK_VARIANT !== 'plain');
const cut = await Promise.all(
  stored.map(async (variant) => {
    const { service, environment } = variant;
    const { listenerOf } = await startGatehouse(
      { after },
      [service],
      NOWHERE,
      environment,
      'listening',
    );
    return { ...variant, call: callsOf(listenerOf(service)) };
  }),
);
const running = await start();

for (const { name, service, rows, call } of cut) {
  test(`${name}: a row that needs the database says that it is missing`, async () => {
    const refusal = UNAVAILABLE[service];
    const credential = service === 'identity' ? createSessionToken() : `share:${TOKEN}`;
    for (const row of rows) {
      const isOfPage = isPage(row);
      const isAccess = row.security.includes('access_token');
      const own = bearer(isAccess ? TOKEN : credential);
      const headers = { ...(isOfPage ? {} : own), cookie: COOKIE };
      const program = { body: { client_id: 'text', client_secret: TOKEN } };
      const caller = { headers: { ...headers, 'x-link-key': TOKEN } };
      const answer = await send(call, row, isOfProgram(row) && !isAccess ? program : caller);
      // Some pages need nothing that is stored, nor does a visitor whom nobody vouches for.
      const needsNothing = isOfPage || row.pattern === '/inbox/user';
      if (row.errors.includes(refusal[1]) && !(needsNothing && answer.status < 500))
        assertRefused(answer, row, refusal, [], 'without a database');
      else assert.ok(answer.status < 500, `${nameOf(row)}: ${answer.text}`);
    }
  });
}

test('identity: a malformed credential costs no query: it is 401 without the database', async () => {
  const { rows, call } = cut[0] ?? assert.fail();
  for (const row of rows.filter(({ security }) => security.includes('bearer'))) {
    for (const token of ['session:garbage', 'key:garbage']) {
      const answer = await send(call, row, { headers: bearer(token) });
      assertRefused(answer, row, [401, 'unauthorized'], [], token);
    }
  }
});

const METHODS = ['DELETE', 'GET', 'HEAD', 'PATCH', 'POST', 'PUT'];
/** Headers that differ from reply to reply, or tell that a body is sent in chunks. */
const OWN = /^(date|x-request-id|set-cookie|transfer-encoding)$/;

const patternsOf = (rows: readonly Row[]) => [...new Set(rows.map(({ pattern }) => pattern))];
const ALL = patternsOf(VARIANTS.flatMap(({ served }) => served));
const codeOf = ({ json }: Answer) => json?.error?.code;

for (const { name, rows, served, url } of running) {
  const call: Call = (method, path, options) => ask(method, url + path, options);
  test(`${name}: each path allows the methods of its rows, and names them`, async () => {
    for (const pattern of patternsOf(rows)) {
      const own = served.filter((row) => row.pattern === pattern).map(({ method }) => method);
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

const isLink = ({ security, method, pattern }: Row) =>
  (method === 'POST' && /^\/(s|r|request)\//.test(pattern)) || security.includes('link_key');

/** More than a network may send at once, or of the keys of links in ten minutes. */
const MOST = 150;

for (const { name, service, rows, call } of running) {
  test(`${name}: after too many wrong credentials of a network, each row is 429`, async (t) => {
    stopClock(t);
    const wrong = service === 'identity' ? createApiKey() : TOKEN;
    const others = { cookie: COOKIE, 'x-link-key': TOKEN, 'x-forwarded-for': '192.0.2.1' };
    const headers = { ...bearer(wrong), ...others };
    const guarded = rows.filter(
      (row) => isLink(row) || isOfProgram(row) || row.security.length > 0,
    );
    if (name === service) assert.ok(guarded.length > 0);
    for (const row of guarded) {
      const program = { headers: others, body: { client_id: 'text', client_secret: TOKEN } };
      const sent = isOfProgram(row) ? program : { headers };
      let answer = await send(call, row, sent);
      // The first row uses up the attempts.
      for (let count = 0; count < MOST && answer.status !== 429; count += 1)
        answer = await send(call, row, sent);
      assertRefused(answer, row, [429, 'too_many_requests'], [], 'wrong again');
    }
  });
}

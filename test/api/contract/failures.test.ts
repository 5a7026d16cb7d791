/** What each row answers without its database, and after too many wrong credentials. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createApiKey, createSessionToken } from '../../../src/identity/token.ts';
import { callsOf } from '../../support/calls.ts';
import { stopClock } from '../../support/clock.ts';
import {
  assertRefused,
  bearer,
  isOfProgram,
  isPage,
  nameOf,
  type Row,
  send,
  start,
  VARIANTS,
} from '../../support/contract.ts';
import { startGatehouse } from '../../support/gatehouse.ts';

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
    assert.ok(guarded.length > 0);
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

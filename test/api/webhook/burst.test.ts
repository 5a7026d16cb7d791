/** Hundreds of large events at the same instant: none is refused while the token is looked up. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { holdTimers, stopClock } from '../../support/clock.ts';
import { PATIENT } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { exchangeAtOnce, headOf } from '../../support/socket.ts';
import { test } from '../../support/until.ts';

const EVENTS = 512;
const SIZE = 60_000;
const HEAD = headOf([
  ...['POST /webhook HTTP/1.1', 'Host: gatehouse.test', 'Content-Type: application/json'],
  ...[`Authorization: Bearer ${WEBHOOK_TOKEN}`, `Content-Length: ${SIZE}`],
]);
const BODY = '{"event":"made","data":{"page_id":"p"}}'.padEnd(SIZE);

/** How long connections are paused, and bodies wait for room: a slow machine needs longer. */
const WAITS_MS = [1_000, 2_000];

const { url: databaseUrl } = await createDatabase();
const { url } = await startGatehouse(
  { after },
  ['webhook'],
  `${databaseUrl}?connect_timeout=99`,
  PATIENT,
  'ready',
  240_000,
);

test(`${EVENTS} events of ${SIZE} bytes that one sender sends at once are accepted`, async (t) => {
  for (const ms of WAITS_MS) holdTimers(t, ms);
  // An event waits a limited time for a statement.
  stopClock(t);
  const answers = await exchangeAtOnce(url.webhook, Array<string>(EVENTS).fill(HEAD + BODY));
  const refused = answers.filter(({ status }) => status !== 200);
  assert.deepEqual([refused.length, refused[0]?.body], [0, undefined]);
});

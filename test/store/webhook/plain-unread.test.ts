/**
 * The plain variant prints events to the stream of the log: a reader that stops costs neither
 * memory nor log lines.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { buildProgram } from '../../support/process.ts';
import { startUnread } from '../../support/unread.ts';
import { test, until } from '../../support/until.ts';

test('events that wait to be printed drop no log lines; beyond a limit they are refused, not printed', async (t) => {
  const { child, parsed, url, readOn } = await startUnread(t, buildProgram(), 'webhook', {
    WEBHOOK_VARIANT: 'plain',
    WEBHOOK_TOKEN,
    WEBHOOK_HOST: '127.0.0.1',
    WEBHOOK_PORT: '0',
    LOG_PROBES: 'on',
  });
  const EVENTS = 300;
  const answers = new Map<string, number>();
  const sent = Promise.all(
    Array.from({ length: EVENTS }, async (_, number) => {
      const event = `event-${number}`;
      const body = { event, data: { page_id: 'p', text: 'x'.repeat(60_000) } };
      const answer = await ask('POST', `${url}/webhook`, { bearer: WEBHOOK_TOKEN, body });
      answers.set(event, answer.status);
    }),
  );
  // By then more waits than the MiB after which request lines are dropped.
  await until(() => [...answers.values()].includes(503), 'one is refused');
  for (let probe = 0; probe < 20; probe += 1)
    assert.equal((await ask('GET', `${url}/livez`)).status, 200);
  readOn();
  await sent;
  child.kill('SIGTERM');
  await once(child, 'close');
  const requests = parsed().filter(({ message }) => message === 'request');
  const linesOf = (what: string) => requests.filter(({ route }) => route === what).length;
  assert.deepEqual([linesOf('GET /livez'), linesOf('POST /webhook')], [20, EVENTS]);
  assert.deepEqual(new Set(answers.values()), new Set([200, 503]));
  const accepted = [...answers].filter(([, status]) => status === 200).map(([event]) => event);
  const printed = parsed().flatMap(({ body }) => (body ? [Object(body).event] : []));
  assert.deepEqual(printed.sort(), accepted.sort());
});

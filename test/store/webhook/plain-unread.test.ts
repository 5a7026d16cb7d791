/**
 * The plain variant prints events to the stream of the log: a reader that stops costs neither
 * memory nor log lines.
 */
import assert from 'node:assert/strict';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';

test('events that wait to be printed drop no log lines; beyond a limit they are refused, not printed', async (t) => {
  const running = startProgram(t, buildProgram(), ['serve', 'webhook'], {
    WEBHOOK_VARIANT: 'plain',
    WEBHOOK_TOKEN,
    WEBHOOK_HOST: '127.0.0.1',
    WEBHOOK_PORT: '0',
    LOG_PROBES: 'on',
  });
  await running.ready('webhook');
  const url = await running.url('webhook');
  running.stopReading();
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
  running.read();
  await sent;
  running.signal('SIGTERM');
  await running.ended;
  const requests = running.log().filter(({ message }) => message === 'request');
  const linesOf = (what: string) => requests.filter(({ route }) => route === what).length;
  assert.deepEqual([linesOf('GET /livez'), linesOf('POST /webhook')], [20, EVENTS]);
  assert.deepEqual(new Set(answers.values()), new Set([200, 503]));
  const accepted = [...answers].filter(([, status]) => status === 200).map(([event]) => event);
  const printed = running.log().flatMap(({ body }) => (body ? [Object(body).event] : []));
  assert.deepEqual(printed.sort(), accepted.sort());
});

/**
 * The plain variant prints events to the stream of the log: a reader that stops costs neither
 * memory nor log lines.
 */
import assert from 'node:assert/strict';
import { untilSql } from '../../support/connections.ts';
import { type Answer, ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { freePorts } from '../../support/ports.ts';
import { root, startProgram } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';

const environment = {
  WEBHOOK_VARIANT: 'plain',
  WEBHOOK_TOKEN,
  WEBHOOK_HOST: '127.0.0.1',
  WEBHOOK_PORT: '0',
  LOG_PROBES: 'on',
};

test('events that wait to be printed drop no log lines; beyond a limit they are refused, not printed', async (t) => {
  const running = startProgram(t, root, ['serve', 'webhook'], environment);
  await running.ready('webhook');
  const url = await running.url('webhook');
  running.stopReading();
  const EVENTS = 300;
  const answers = new Map<string, string>();
  const sent = Promise.all(
    Array.from({ length: EVENTS }, async (_, number) => {
      const event = `event-${number}`;
      const body = { event, data: { page_id: 'p', text: 'x'.repeat(60_000) } };
      const answer = await ask('POST', `${url}/webhook`, { bearer: WEBHOOK_TOKEN, body });
      answers.set(event, answer.status === 200 ? 'accepted' : answer.json.error.code);
    }),
  );
  // By then more waits than the MiB after which request lines are dropped.
  await until(() => [...answers.values()].includes('overloaded'), 'one is refused');
  for (let probe = 0; probe < 20; probe += 1)
    assert.equal((await ask('GET', `${url}/livez`)).status, 200);
  running.read();
  await sent;
  running.signal('SIGTERM');
  await running.ended;
  const requests = running.log().filter(({ message }) => message === 'request');
  const linesOf = (what: string) => requests.filter(({ route }) => route === what).length;
  assert.deepEqual([linesOf('GET /livez'), linesOf('POST /webhook')], [20, EVENTS]);
  const eventsWith = (outcome: string) =>
    [...answers].filter(([, each]) => each === outcome).map(([event]) => event);
  const printed = new Set(
    running.log().flatMap(({ body }) => (body ? [String(Object(body).event)] : [])),
  );
  assert.ok(eventsWith('accepted').length > 0);
  // On a slow machine some are answered by a time limit, which says neither.
  assert.deepEqual(
    eventsWith('accepted').filter((event) => !printed.has(event)),
    [],
  );
  assert.deepEqual(
    eventsWith('overloaded').filter((event) => printed.has(event)),
    [],
  );
});

test('without a reader, no event is accepted', async (t) => {
  const [port = ''] = await freePorts(1);
  const given = { ...environment, WEBHOOK_PORT: port };
  startProgram(t, root, ['serve', 'webhook'], given, { deaf: true });
  const body = { event: 'unread', data: { page_id: 'p' } };
  const post = () =>
    ask('POST', `http://127.0.0.1:${port}/webhook`, { bearer: WEBHOOK_TOKEN, body });
  let answers: Answer[] = [];
  await untilSql(async () => {
    answers = await Promise.all([post(), post()]).catch(() => []);
    return answers.length > 0;
  }, 'it listens');
  assert.deepEqual(
    answers.map(({ status, json }) => [status, json.error.code]),
    new Array(2).fill([503, 'unavailable']),
  );
});

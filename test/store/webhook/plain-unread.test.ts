/**
 * The plain variant prints events to the stream of the log: a reader that stops costs neither
 * memory nor log lines.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type TestContext } from 'node:test';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { buildProgram } from '../../support/process.ts';
import { startUnread } from '../../support/unread.ts';
import { test, until } from '../../support/until.ts';

const program = buildProgram();

async function startReceiver(t: TestContext) {
  const unread = await startUnread(t, program, 'webhook', {
    WEBHOOK_VARIANT: 'plain',
    WEBHOOK_TOKEN,
    WEBHOOK_HOST: '127.0.0.1',
    WEBHOOK_PORT: '0',
    LOG_PROBES: 'on',
  });
  const send = (number: number) =>
    ask('POST', `${unread.url}/webhook`, {
      bearer: WEBHOOK_TOKEN,
      body: { event: `event-${number}`, data: { page_id: 'p', text: 'x'.repeat(60_000) } },
    });
  return { ...unread, send };
}

test('events that wait to be printed drop no log lines; beyond a limit they are refused, not printed', async (t) => {
  const { child, parsed, url, readOn, send } = await startReceiver(t);
  const answers = new Map<number, number>();
  const sent = Promise.all(
    Array.from({ length: 300 }, async (_, number) =>
      answers.set(number, (await send(number)).status),
    ),
  );
  // By then more waits than the MiB after which request lines are dropped.
  await until(() => [...answers.values()].includes(503), 'one is refused');
  const PROBES = 20;
  for (let probe = 0; probe < PROBES; probe += 1)
    assert.equal((await ask('GET', `${url}/livez`)).status, 200);
  readOn();
  await sent;
  child.kill('SIGTERM');
  await once(child, 'close');
  const requests = parsed().filter(({ message }) => message === 'request');
  const count = (what: string) => requests.filter(({ route }) => route === what).length;
  assert.deepEqual([count('GET /livez'), count('POST /webhook')], [PROBES, 300]);
  const printed = parsed().flatMap(({ body }) => (body ? [Object(body).event] : []));
  const accepted = [...answers].flatMap(([number, status]) =>
    status === 200 ? [`event-${number}`] : [],
  );
  assert.deepEqual(new Set(answers.values()), new Set([200, 503]));
  assert.deepEqual(new Set(printed), new Set(accepted));
  assert.equal(printed.length, accepted.length);
});

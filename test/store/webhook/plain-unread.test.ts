/**
 * The plain variant prints events to the stream of the log: a reader that stops costs neither
 * memory nor log lines.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test, type TestContext } from 'node:test';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { buildProgram } from '../../support/process.ts';
import { startUnread } from '../../support/unread.ts';
import { bounded, until } from '../../support/until.ts';

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

test(
  'events that wait to be printed drop no log lines and are acknowledged once printed',
  bounded,
  async (t) => {
    const { child, parsed, url, readOn, send } = await startReceiver(t);
    const sent = Promise.all(Array.from({ length: 40 }, (_, number) => send(number)));
    // By now more than the MiB waits after which request lines are dropped.
    await new Promise((resolve) => setTimeout(resolve, 300));
    const PROBES = 20;
    for (let probe = 0; probe < PROBES; probe += 1)
      assert.equal((await ask('GET', `${url}/livez`)).status, 200);
    readOn();
    assert.deepEqual(
      (await sent).map(({ status }) => status),
      Array<number>(40).fill(200),
    );
    child.kill('SIGTERM');
    await once(child, 'close');
    const count = (what: (line: Record<string, unknown>) => boolean) =>
      parsed().filter(what).length;
    assert.equal(
      count(({ level }) => level === 'warn'),
      0,
      'nothing was dropped',
    );
    assert.equal(
      count(({ route }) => route === 'GET /livez'),
      PROBES,
    );
    assert.equal(
      count(({ route }) => route === 'POST /webhook'),
      40,
    );
  },
);

test(
  'events beyond the limit of unprinted bytes are answered 503 and never printed',
  bounded,
  async (t) => {
    const { child, parsed, readOn, send } = await startReceiver(t);
    const answers = new Map<number, number>();
    const sent = Promise.all(
      Array.from({ length: 300 }, async (_, number) =>
        answers.set(number, (await send(number)).status),
      ),
    );
    await until(() => [...answers.values()].includes(503), 'one is refused');
    readOn();
    await sent;
    child.kill('SIGTERM');
    await once(child, 'close');
    const printed = parsed().flatMap(({ body }) => (body ? [Object(body).event] : []));
    const accepted = [...answers].flatMap(([number, status]) =>
      status === 200 ? [`event-${number}`] : [],
    );
    assert.deepEqual(new Set(answers.values()), new Set([200, 503]));
    assert.deepEqual(new Set(printed), new Set(accepted));
    assert.equal(printed.length, accepted.length);
  },
);

/** The plain receiver prints events where the log goes, too; a reader that stops there must cost neither memory nor log lines. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { ask } from '../support/gatehouse.ts';
import { buildProgram } from '../support/process.ts';
import { bounded, until } from '../support/until.ts';

const program = buildProgram();
const TOKEN = 'webhook-token-for-tests-0123456789abcdef';

/** A receiver that is ready, and whose output is not read any more. */
async function startUnread(t: TestContext) {
  const environment = { WEBHOOK_VARIANT: 'plain', WEBHOOK_TOKEN: TOKEN, WEBHOOK_HOST: '127.0.0.1', WEBHOOK_PORT: '0' };
  const child = spawn(process.execPath, [join(program, 'dist/cli.js'), 'serve', 'webhook'], { env: environment, stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => void child.kill('SIGKILL'));
  let read = '';
  const listen = (part: Buffer) => (read += part.toString('utf8'));
  child.stdout.on('data', listen);
  const parsed = (): Array<Record<string, unknown>> => read.split('\n').slice(0, -1).map((text) => JSON.parse(text));
  await until(() => parsed().some(({ message }) => message === 'ready'), 'it is ready');
  const port = parsed().find(({ service, message }) => service === 'webhook' && message === 'listening')?.port;
  child.stdout.off('data', listen).pause();
  return {
    child,
    parsed,
    url: `http://127.0.0.1:${String(port)}`,
    readOn: () => void child.stdout.on('data', listen).resume(),
    send: (number: number) => ask('POST', `http://127.0.0.1:${String(port)}/webhook`, { bearer: TOKEN, body: { event: `event-${number}`, data: { page_id: 'p', text: 'x'.repeat(60_000) } } }),
  };
}

test('events that wait to be printed drop no line of the log, and are acknowledged once they are printed', bounded, async (t) => {
  const { child, parsed, url, readOn, send } = await startUnread(t);
  const sent = Promise.all(Array.from({ length: 40 }, (_, number) => send(number)));
  let probes = 0;
  const waiting = new Promise<void>((resolve) => setTimeout(resolve, 300));
  // More than the MiB after which lines of requests are dropped waits by then.
  await waiting;
  for (; probes < 20; probes += 1) assert.equal((await ask('GET', `${url}/livez`)).status, 200);
  readOn();
  assert.deepEqual((await sent).map(({ status }) => status), Array<number>(40).fill(200));
  child.kill('SIGTERM');
  await once(child, 'close');
  const count = (what: (line: Record<string, unknown>) => boolean) => parsed().filter(what).length;
  assert.equal(count(({ level }) => level === 'warn'), 0, 'nothing was dropped');
  assert.equal(count(({ route }) => route === 'GET /livez'), probes);
  assert.equal(count(({ route }) => route === 'POST /webhook'), 40);
});

test('when too much waits to be printed, events are refused with 503, and none that was refused is printed', bounded, async (t) => {
  const { child, parsed, readOn, send } = await startUnread(t);
  const answers = new Map<number, number>();
  const sent = Promise.all(Array.from({ length: 300 }, async (_, number) => answers.set(number, (await send(number)).status)));
  await until(() => [...answers.values()].includes(503), 'one is refused');
  readOn();
  await sent;
  child.kill('SIGTERM');
  await once(child, 'close');
  const printed = parsed().flatMap(({ body }) => (body ? [Object(body).event] : []));
  const accepted = [...answers].flatMap(([number, status]) => (status === 200 ? [`event-${number}`] : []));
  assert.deepEqual(new Set(answers.values()), new Set([200, 503]));
  assert.deepEqual(new Set(printed), new Set(accepted));
  assert.equal(printed.length, accepted.length);
});

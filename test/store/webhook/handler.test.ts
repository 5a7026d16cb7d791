import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { createHandlerTarget } from '../../../src/webhook/targets/handler.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, variables, startGatehouse } from '../../support/gatehouse.ts';
import { buildProgram, root, type Running, startProgram } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';
import {
  deliverOnce,
  stateOf,
  leasedEvent,
  untilEnded,
  sendEvent,
} from '../../support/webhook-store.ts';

const directory = mkdtempSync(join(tmpdir(), 'gatehouse-handler-'));
after(() => rmSync(directory, { recursive: true, force: true }));
const never = new AbortController().signal;
const MODULE = join(root, 'test/support/handler.mjs');
const LATER = join(directory, 'later');
let files = 0;

/** A handler for one test, and its records. */
function open(t: TestContext, module = MODULE) {
  files += 1;
  const told = join(directory, `told-${files}`);
  writeFileSync(told, '');
  const handler = createHandlerTarget(module, { TOLD: told, LATER, GREETING: 'hello' });
  t.after(() => handler.close());
  return {
    outcome: (event: string, timeoutMs?: number) =>
      deliverOnce(handler, leasedEvent({ event }), timeoutMs),
    deliver: handler.deliver,
    told: () =>
      readFileSync(told, 'utf8')
        .split('\n')
        .filter(Boolean)
        .map((line): unknown => JSON.parse(line)),
  };
}

const told = join(directory, 'told');
const { url, sql } = await createDatabase();
const gatehouse = await startGatehouse({ after }, ['webhook'], url, {
  // One thread, so that the next event uses the same one.
  WEBHOOK_HANDLER: join(root, 'test/support/handler.mjs'),
  TOLD: told,
  LATER,
  WEBHOOK_CONCURRENCY: '1',
  WEBHOOK_RETRY_SCHEDULE: '1ms,2ms,4ms,8ms,16ms,32ms',
});

test('a handler gets the event, its data and bytes, and the environment without our variables', async (t) => {
  const { deliver, told } = open(t);
  const task = leasedEvent({
    event: 'facts',
    attempt: 3,
    body: Buffer.from([0, 255, 128, 10]),
    headers: { 'x-github-event': 'push' },
  });
  assert.deepEqual(await deliver(task, never), { error: null });
  const { environment, ...event } = Object(told()[0]);
  assert.deepEqual(event, {
    id: task.id,
    event: 'facts',
    source: 'generic',
    deliveryId: 'd-1',
    attempt: 3,
    receivedAt: '2030-01-02T03:04:05.678Z',
    headers: { 'x-github-event': 'push' },
    body: '00ff800a',
    isBytes: true,
  });
  const { TOLD, ...others } = Object(environment);
  assert.deepEqual(others, { LATER, GREETING: 'hello' });
});

test('a handler gets no bytes that lie beside its event in memory', async (t) => {
  const { outcome, told } = open(t);
  assert.equal(await outcome('backing store'), null);
  assert.deepEqual(told(), [leasedEvent().body.length]);
});

test('a returned value or a fulfilled promise is success, whatever the value', async (t) => {
  const { outcome } = open(t);
  for (const event of ['returns', 'fulfils', 'returns garbage', 'returns an error', 'prints'])
    assert.equal(await outcome(event), null, event);
});

test('a thrown or rejected value is a failure with its message, whatever the value', async (t) => {
  const { outcome } = open(t);
  const failed = 'the handler failed: ';
  assert.equal(await outcome('throws'), `${failed}thrown at once`);
  assert.equal(await outcome('rejects'), `${failed}rejected`);
  assert.equal(await outcome('throws a text'), `${failed}a bare text`);
  assert.equal(await outcome('throws nothing'), `${failed}undefined`);
  assert.equal(await outcome('throws an object'), `${failed}[object Object]`);
  for (const event of ['throws what has no text', 'throws what cannot be sent'])
    assert.match((await outcome(event)) ?? '', /^the handler /, event);
});

test('an error whose message is null is an error', async (t) => {
  assert.match(
    (await open(t).outcome('throws a message that is null')) ?? '',
    /^the handler failed/,
  );
});

test('a handler that exits, loops, hangs or throws outside of its call fails alone', async (t) => {
  const { outcome } = open(t);
  const late = 'the handler was stopped';
  const expected = new Map<string, string | null>([
    ['exits', 'the handler ended its thread'],
    ['exits with 1', 'the handler ended its thread'],
    ['never ends', late],
    ['loops', late],
    [
      'fails out of turn',
      'the handler could not be loaded, or threw outside of a call: out of turn',
    ],
  ]);
  const given = await Promise.all(
    [...expected.keys(), 'returns', 'fulfils'].map((event) =>
      outcome(event, expected.get(event) === late ? 1_000 : undefined),
    ),
  );
  assert.deepEqual(given, [...expected.values(), null, null]);
  for (const event of ['returns', 'fulfils']) assert.equal(await outcome(event), null);
});

test('a handler that throws null outside of its call fails like any other', async (t) => {
  const { outcome } = open(t);
  assert.match(
    (await outcome('fails out of turn with null')) ?? '',
    /^the handler could not be loaded, or threw outside of a call/,
  );
});

for (const event of ['fails later', 'rejects later', 'exits later']) {
  test(`an idle thread that ${event} affects no other event`, async (t) => {
    const { outcome, told } = open(t);
    assert.equal(await outcome(event), null);
    writeFileSync(LATER, '');
    await until(() => told().length === 1, 'it has happened');
    // The next event may still get the ending thread; the one after it gets a new thread.
    await outcome('returns');
    assert.equal(await outcome('returns'), null);
  });
}

test('a missing or broken module, or one without default function, fails events with the reason', async (t) => {
  const modules = {
    'missing.mjs': null,
    'broken.mjs': 'export default (',
    'none.mjs': 'export const x = 1;',
    'text.mjs': 'export default "x";',
    'throws.mjs': 'throw new Error("at load");',
  };
  for (const [name, text] of Object.entries(modules)) {
    const path = join(directory, name);
    if (text !== null) writeFileSync(path, text);
    const { outcome } = open(t, path);
    for (const turn of [1, 2])
      assert.match(
        (await outcome('returns')) ?? '',
        /^the handler could not be loaded, or threw outside of a call: ./,
        `${name}, ${turn}`,
      );
  }
});

test('a module that never finishes loading meets the time limit', async (t) => {
  const path = join(directory, 'loading.mjs');
  writeFileSync(path, 'await new Promise(() => setInterval(() => {}, 1_000));');
  assert.equal(await open(t, path).outcome('returns', 500), 'the handler was stopped');
});

test('a CommonJS module works, and so does a path that needs escaping in a URL', async (t) => {
  const path = join(directory, 'common #1 100%.cjs');
  writeFileSync(path, 'module.exports = async () => {};');
  assert.equal(await open(t, path).outcome('returns'), null);
});

test('a thread is reused after success and failure, and never used by two events at once', async (t) => {
  const { outcome, told } = open(t);
  for (const event of ['thread', 'throws', 'thread', 'rejects', 'thread']) await outcome(event);
  assert.equal(new Set(told()).size, 1);
  await Promise.all(Array.from({ length: 4 }, () => outcome('thread')));
  assert.equal(new Set(told()).size, 4);
  await Promise.all(Array.from({ length: 4 }, () => outcome('thread')));
  assert.equal(new Set(told()).size, 4);
});

test('as many threads as WEBHOOK_CONCURRENCY allows cause no leak warning', async (t) => {
  const warnings: string[] = [];
  const note = (warning: Error) => {
    warnings.push(warning.message);
  };
  process.on('warning', note);
  const { outcome } = open(t);
  assert.deepEqual(
    [...new Set(await Promise.all(Array.from({ length: 16 }, () => outcome('returns'))))],
    [null],
  );
  process.off('warning', note);
  assert.deepEqual(warnings, []);
});

test('a shutdown ends a handler in progress', async (t) => {
  const stop = new AbortController();
  const pending = open(t).deliver(leasedEvent({ event: 'never ends' }), stop.signal);
  stop.abort();
  assert.deepEqual(await pending, { error: 'the handler was stopped' });
});

test('the build behaves the same with handlers that fail, exit, loop or fail later', async (t) => {
  const { url, sql } = await createDatabase(t);
  const told = join(directory, 'compiled');
  writeFileSync(told, '');
  const serve = async (WEBHOOK_TIMEOUT: string) => {
    const running = startProgram(t, buildProgram(), ['serve', 'webhook'], {
      ...variables(url),
      WEBHOOK_HANDLER: MODULE,
      TOLD: told,
      LATER,
      WEBHOOK_TIMEOUT,
      WEBHOOK_RETRY_SCHEDULE: 'none',
    });
    await running.ready('webhook');
    return running;
  };
  const statesOf = async (running: Running, ...events: readonly string[]) => {
    const address = await running.url('webhook');
    const ids = await Promise.all(events.map((event) => sendEvent(address, event)));
    return Promise.all(
      ids.map(async (id) => {
        await untilEnded(sql, id);
        return (await stateOf(sql, id)).status;
      }),
    );
  };
  const hasty = await serve('1');
  assert.deepEqual(await statesOf(hasty, 'loops'), ['dead']);
  hasty.signal('SIGTERM');
  assert.deepEqual(await hasty.ended, { code: 0, signal: null });
  // The others have as long as a slow machine needs to start their threads.
  const running = await serve('300');
  assert.deepEqual(
    await statesOf(running, 'facts', 'prints', 'throws', 'exits', 'returns', 'fails later'),
    ['done', 'done', 'dead', 'dead', 'done', 'done'],
  );
  await until(() => /^printed by a handler$/m.test(running.stderr()), 'what it has printed');
  assert.ok(!running.stdout().includes('printed by a handler'), 'standard output is for the log');
  const facts: { environment: object } = JSON.parse(
    readFileSync(told, 'utf8')
      .split('\n')
      .find((line) => line.startsWith('{')) ?? '',
  );
  assert.deepEqual(facts.environment, { TOLD: told, LATER }, 'none of the variables that are ours');
  writeFileSync(LATER, '');
  await until(() => readFileSync(told, 'utf8').includes('"later"'), 'it has failed later');
  await sendEvent(await running.url('webhook'), 'returns');
  running.signal('SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
});

writeFileSync(told, '');

async function handle(event: string): Promise<string> {
  const id = await sendEvent(gatehouse.url.webhook, event);
  await untilEnded(sql, id);
  return (await stateOf(sql, id)).status;
}

const lines = () => readFileSync(told, 'utf8').split('\n').length - 1;

for (const event of ['fails later', 'rejects later', 'exits later']) {
  test(`an idle handler thread that ${event} affects neither events nor the service`, async () => {
    const before = lines();
    assert.equal(await handle(event), 'done');
    writeFileSync(LATER, '');
    await until(() => lines() === before + 1, 'it has happened');
    for (const next of ['returns', 'fulfils']) assert.equal(await handle(next), 'done', next);
    assert.equal((await ask('GET', `${gatehouse.url.webhook}/readyz`)).status, 200);
    assert.deepEqual(
      gatehouse.log().filter(({ level }) => level === 'error'),
      [],
    );
  });
}

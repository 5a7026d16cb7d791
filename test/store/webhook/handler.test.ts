import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { createHandlerTarget } from '../../../src/webhook/targets/handler.ts';
import { createDatabase } from '../../support/database.ts';
import { variables } from '../../support/gatehouse.ts';
import { buildProgram, root, startProgram } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';
import { sendEvent } from '../../support/inbox.ts';
import { leasedEvent, untilStatus } from '../../support/webhook-store.ts';

const directory = makeTemporary(tmpdir(), 'gatehouse-handler');
after(() => removeTemporary(directory));
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
    /** The error, or null on success. The worker sets the time limit otherwise. */
    outcome: async (event: string, timeoutMs = 240_000) =>
      (await handler.deliver(leasedEvent({ event }), AbortSignal.timeout(timeoutMs))).error,
    deliver: handler.deliver,
    told: () =>
      readFileSync(told, 'utf8')
        .split('\n')
        .filter(Boolean)
        .map((line): unknown => JSON.parse(line)),
  };
}

test('a handler gets the event, its data and bytes, and the environment without our variables', async (t) => {
  const { deliver, outcome, told } = open(t);
  const task = leasedEvent({
    event: 'facts',
    attempt: 3,
    body: Buffer.from([0, 255, 128, 10]),
    headers: { 'x-github-event': 'push' },
  });
  assert.deepEqual(await deliver(task, new AbortController().signal), { error: null });
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
  const { TOLD: _told, ...others } = Object(environment);
  assert.deepEqual(others, { LATER, GREETING: 'hello' });
  assert.equal(await outcome('backing store'), null);
  assert.equal(told()[1], leasedEvent().body.length, 'no bytes that lie beside it in memory');
});

const FAILED = 'the handler failed: ';
const OUTSIDE = 'the handler could not be loaded, or threw outside of a call: ';
const OUTCOMES: ReadonlyArray<readonly [event: string, said: RegExp | null]> = [
  ['returns', null],
  ['fulfils', null],
  ['returns garbage', null],
  ['returns an error', null],
  ['throws', RegExp(`^${FAILED}thrown at once$`)],
  ['rejects', RegExp(`^${FAILED}rejected$`)],
  ['throws a text', RegExp(`^${FAILED}a bare text$`)],
  ['throws nothing', RegExp(`^${FAILED}undefined$`)],
  ['throws an object', RegExp(`^${FAILED}\\[object Object\\]$`)],
  ['throws a message that is null', RegExp(`^${FAILED}`)],
  ['throws what has no text', /^the handler /],
  ['throws what cannot be sent', /^the handler /],
  ['exits', /^the handler ended its thread$/],
  ['exits with 1', /^the handler ended its thread$/],
  ['fails out of turn', RegExp(`^${OUTSIDE}out of turn$`)],
  ['fails out of turn with null', RegExp(`^${OUTSIDE}`)],
];

function assertOutcome(error: string | null, said: RegExp | null, what: string): void {
  if (said) assert.match(error ?? '', said, what);
  else assert.equal(error, null, what);
}

test('a returned value is success, a thrown one failure, whatever it is; both fail alone', async (t) => {
  const { outcome } = open(t);
  const side = OUTCOMES.filter(([event]) =>
    /^(exits|fails out of turn|returns|fulfils)$/.test(event),
  );
  const errors = await Promise.all(side.map(([event]) => outcome(event)));
  for (const [index, [event, said]] of side.entries())
    assertOutcome(errors[index] ?? null, said, `beside others, ${event}`);
  for (const [event, said] of OUTCOMES) assertOutcome(await outcome(event), said, event);
});

test('a handler that loops or never ends is stopped, and delays no other', async (t) => {
  const { outcome, deliver } = open(t);
  const stop = new AbortController();
  const events = ['never ends', 'loops'];
  const stuck = events.map((event) => deliver(leasedEvent({ event }), stop.signal));
  assert.equal(await outcome('returns'), null);
  stop.abort();
  for (const result of stuck) assert.deepEqual(await result, { error: 'the handler was stopped' });
  assert.equal(await outcome('fulfils'), null);
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

test('a module that is missing, broken or has no default function fails events with the reason', async (t) => {
  const modules = {
    'missing.mjs': null,
    'broken.mjs': 'export default (',
    'none.mjs': 'export const x = 1;',
    'text.mjs': 'export default "x";',
    'throws.mjs': 'throw new Error("at load");',
  };
  const write = (name: string, text: string | null) => {
    if (text !== null) writeFileSync(join(directory, name), text);
    return open(t, join(directory, name));
  };
  for (const [name, text] of Object.entries(modules)) {
    const { outcome } = write(name, text);
    for (const turn of [1, 2])
      assert.match((await outcome('returns')) ?? '', RegExp(`^${OUTSIDE}.`), `${name}, ${turn}`);
  }
  const loading = write('loading.mjs', 'await new Promise(() => setInterval(() => {}, 1_000));');
  assert.equal(await loading.outcome('returns', 500), 'the handler was stopped');
  const common = write('common #1 100%.cjs', 'module.exports = async () => {};');
  assert.equal(await common.outcome('returns'), null, 'CommonJS, at a path that needs escaping');
});

test('a thread is reused after success and failure, and never used by two events at once', async (t) => {
  const { outcome, told } = open(t);
  for (const event of ['thread', 'throws', 'thread', 'rejects', 'thread']) await outcome(event);
  assert.equal(new Set(told()).size, 1);
  for (const _turn of [1, 2]) {
    await Promise.all(Array.from({ length: 4 }, () => outcome('thread')));
    assert.equal(new Set(told()).size, 4);
  }
});

test('the service calls its handler, and goes on with handlers that fail, exit or fail later', async (t) => {
  const { url, sql } = await createDatabase(t);
  const told = join(directory, 'compiled');
  writeFileSync(told, '');
  const running = startProgram(t, buildProgram(), ['serve', 'webhook'], {
    ...variables(url),
    WEBHOOK_HANDLER: MODULE,
    TOLD: told,
    LATER,
    WEBHOOK_RETRY_SCHEDULE: 'none',
  });
  await running.ready('webhook');
  const address = await running.url('webhook');
  const events = { facts: 'done', prints: 'done', throws: 'dead', exits: 'dead' };
  for (const [event, status] of Object.entries({ ...events, 'fails later': 'done' }))
    await untilStatus(sql, await sendEvent(address, event), status);
  await until(() => /^printed by a handler$/m.test(running.stderr()), 'what it has printed');
  assert.ok(!running.stdout().includes('printed by a handler'), 'standard output is for the log');
  const [facts = ''] = /^\{.*$/m.exec(readFileSync(told, 'utf8')) ?? [];
  // Node adds one while coverage is measured.
  const { NODE_V8_COVERAGE: _coverage, ...environment } = JSON.parse(facts).environment;
  assert.deepEqual(environment, { TOLD: told, LATER }, 'none of the variables that are ours');
  writeFileSync(LATER, '');
  await until(() => readFileSync(told, 'utf8').includes('"later"'), 'it has failed later');
  await untilStatus(sql, await sendEvent(address, 'returns'), 'done');
  running.signal('SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });
});

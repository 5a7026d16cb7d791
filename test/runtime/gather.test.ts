/** Log lines are written together: in few writes, in order, and to the last one however the process ends. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { readConfig } from '../../src/config.ts';
import { gather } from '../../src/runtime/log.ts';
import { migrateAll } from '../../src/serve.ts';
import { createDatabase } from '../support/database.ts';
import { ask, variables } from '../support/gatehouse.ts';
import { buildProgram, startProgram } from '../support/process.ts';
import { connectTo, headOf } from '../support/socket.ts';
import { startUnread } from '../support/unread.ts';
import { bounded, until } from '../support/until.ts';

const program = buildProgram();
const file = await createDatabase();
await migrateAll(readConfig(['identity'], 'administer', { DATABASE_URL: file.url }), process);

const UNDIVIDED = 4_096;

function gathering() {
  const writes: string[] = [];
  return { writes, lines: gather((text) => void writes.push(text), () => 0) };
}

const line = (bytes: number, mark = 'x') => `${mark.repeat(bytes - 1)}\n`;

test('the lines of one turn go in one write, and those of the next in another', async () => {
  const { writes, lines } = gathering();
  for (const text of ['a\n', 'b\n', 'c\n']) lines.add(text);
  await Promise.resolve();
  lines.add('d\n');
  assert.deepEqual(writes, [], 'not before the turn is over');
  await turn();
  assert.deepEqual(writes, ['a\nb\nc\nd\n']);
  lines.add('e\n');
  await turn();
  assert.deepEqual(writes, ['a\nb\nc\nd\n', 'e\n']);
  await turn();
  assert.equal(writes.length, 2, 'where there is nothing, nothing is written');
});

test('no write is larger than what a pipe takes undivided, but for a line that is larger by itself', async () => {
  const { writes, lines } = gathering();
  const added = [line(UNDIVIDED - 10), line(10), line(1, ''), line(5_000), line(100), line(UNDIVIDED), line(4_000), line(97), line(2_500, 'é'), line(2_000), line(97)];
  for (const text of added) lines.add(text);
  await turn();
  assert.equal(writes.join(''), added.join(''), 'in order, and each once');
  for (const text of writes) {
    assert.ok(text.endsWith('\n'));
    assert.ok(Buffer.byteLength(text) <= UNDIVIDED || text.indexOf('\n') === text.length - 1, `${Buffer.byteLength(text)} bytes in one write`);
  }
  assert.equal(writes[0], `${line(UNDIVIDED - 10)}${line(10)}`, 'and they are filled to the last byte');
  assert.equal(writes.length, 9);
});

test('a thousand lines stay in their order and take few writes', async () => {
  const { writes, lines } = gathering();
  const added = Array.from({ length: 1_000 }, (_, number) => `${JSON.stringify({ number, text: 'é'.repeat(number % 120) })}\n`);
  for (const [index, text] of added.entries()) {
    lines.add(text);
    if (index % 100 === 99) await turn();
  }
  assert.equal(writes.join(''), added.join(''));
  const bytes = Buffer.byteLength(added.join(''));
  assert.ok(writes.length < 2 * (bytes / UNDIVIDED + 10), `${writes.length} writes for ${bytes} bytes`);
});

test('what has gathered can be written at once, and is not written again', async () => {
  const { writes, lines } = gathering();
  lines.flush();
  assert.deepEqual(writes, []);
  lines.add('a\n');
  lines.flush();
  lines.flush();
  assert.deepEqual(writes, ['a\n']);
  lines.add('b\n');
  await turn();
  await turn();
  assert.deepEqual(writes, ['a\n', 'b\n']);
});

test('a line that is added while others are being written is neither lost nor out of turn', async () => {
  const writes: string[] = [];
  const lines = gather((text) => {
    writes.push(text);
    if (writes.length < 4) lines.add(`after ${writes.length}\n`);
  }, () => 0);
  lines.add('first\n');
  for (let count = 0; count < 6; count += 1) await turn();
  assert.deepEqual(writes, ['first\n', 'after 1\n', 'after 2\n', 'after 3\n']);
});

const MISSING = 'log lines were dropped, because they were not read fast enough';

test('where too much waits for a reader lines are dropped, those of requests long before others, and how many is said with the next', async () => {
  const writes: string[] = [];
  let unwritten = 1024 * 1024;
  const lines = gather((text) => void writes.push(text), () => unwritten);
  lines.add('a\n', true);
  await turn();
  assert.deepEqual(writes, ['a\n'], 'not yet');
  lines.add('b\n');
  for (let count = 0; count < 3; count += 1) lines.add('c\n', true);
  await turn();
  const [, notice = '', rest] = writes;
  const { time, ...told } = JSON.parse(notice);
  assert.ok(Math.abs(Date.parse(time) - Date.now()) < 60_000, time);
  assert.deepEqual(told, { level: 'warn', message: MISSING, lines: 3 }, 'what is gathered counts');
  assert.equal(rest, 'b\n');
  unwritten = 4 * 1024 * 1024;
  lines.add('d\n');
  lines.add('e\n');
  await turn();
  assert.deepEqual([JSON.parse(writes[3] ?? '').lines, ...writes.slice(4)], [1, 'd\n']);
  unwritten = 0;
  lines.add('f\n', true);
  await turn();
  assert.deepEqual(writes.slice(5), ['f\n'], 'and it is said once');
});

test('what was dropped last is told at the end, too', async () => {
  const writes: string[] = [];
  const lines = gather((text) => void writes.push(text), () => 5 * 1024 * 1024);
  lines.add('a\n');
  await turn();
  assert.deepEqual(writes, []);
  lines.flush();
  assert.equal(JSON.parse(writes[0] ?? '').lines, 1);
  lines.flush();
  assert.equal(writes.length, 1);
});

const REQUESTS = 8_000;

/** A process whose log is not read, and that has answered many requests meanwhile. */
async function startBusy(t: TestContext, environment: Record<string, string> = {}) {
  const unread = await startUnread(t, program, 'identity', { ...variables(file.url), ...environment });
  const client = await connectTo(unread.url);
  t.after(() => client.leave());
  const request = headOf(['GET /livez HTTP/1.1', 'Host: x', `X-Request-Id: ${'y'.repeat(128)}`]);
  for (let sent = 0; sent < REQUESTS; sent += 100) {
    client.send(request.repeat(100));
    for (let answered = 0; answered < 100; answered += 1) assert.equal((await client.answer()).status, 200);
  }
  return { ...unread, client };
}

for (const workers of ['1', '2']) {
  test(`a process whose log nobody reads ends all the same when it is told to, with WORKERS=${workers}`, bounded, async (t) => {
    const { child, client } = await startBusy(t, { WORKERS: workers, SHUTDOWN_GRACE: '1' });
    await client.leave();
    child.kill('SIGTERM');
    assert.deepEqual(await once(child, 'exit'), [0, null]);
  });
}

test('a process whose log nobody reads goes on, in bounded memory, and tells afterwards how many lines are missing', bounded, async (t) => {
  const { client, parsed, readOn } = await startBusy(t);
  readOn();
  const last = headOf(['GET /livez HTTP/1.1', 'Host: x', 'X-Request-Id: last']);
  let more = 0;
  await until(() => {
    client.send(last);
    more += 1;
    return parsed().some(({ request_id }) => request_id === 'last');
  }, 'the log goes on');
  const lines = parsed();
  const seen = lines.filter(({ request_id }) => request_id === 'y'.repeat(128)).length;
  const missing = lines.filter(({ message }) => message === MISSING);
  const count = missing.reduce((sum, { lines }) => sum + Number(lines), 0);
  const facts = `${seen} seen, ${count} missing, ${more} more`;
  assert.ok(seen + count >= REQUESTS && seen + count <= REQUESTS + more, facts);
  assert.ok(seen > 1_000 && count > 1_000, facts);
});

/** Lets the process end as the test wants within the turn in which the line of the last request was gathered. */
const endsBy = (how: string) => {
  const code = `import{ServerResponse as R}from'node:http';const e=R.prototype.end;
    R.prototype.end=function(...a){const r=e.apply(this,a);if(this.req.url==='/livez?last'){let n=0;const f=()=>n++<200?Promise.resolve().then(f):process.nextTick(()=>{${how}});f()}return r}`;
  return { NODE_OPTIONS: `--import=data:text/javascript;base64,${Buffer.from(code).toString('base64')}` };
};

const ENDS: ReadonlyArray<readonly [what: string, how: string, code: number]> = [
  ['process.exit', 'process.exit(7)', 7],
  ['an error that nobody catches', "throw new Error('of the test')", 1],
  ['a second signal', "process.emit('SIGTERM');process.emit('SIGTERM')", 1],
  ['SIGTERM', "process.kill(process.pid,'SIGTERM')", 0],
];

for (const [what, how, code] of ENDS) {
  test(`no line is lost, and none is written twice, when the process ends by ${what}`, bounded, async (t) => {
    const running = startProgram(t, program, ['serve', 'identity'], { ...variables(file.url), ...endsBy(how) });
    await running.ready('identity');
    const url = await running.url('identity');
    const ids = ['one', 'two', 'three'];
    for (const id of ids) await ask('GET', `${url}/livez`, { headers: { 'x-request-id': id } });
    const client = await connectTo(url);
    t.after(() => client.leave());
    // Two in one packet, so that their lines belong to one turn.
    client.send(headOf(['GET /livez HTTP/1.1', 'Host: x', 'X-Request-Id: four']) + headOf(['GET /livez?last HTTP/1.1', 'Host: x', 'X-Request-Id: five']));
    assert.deepEqual(await running.ended, { code, signal: null }, running.stderr());
    const told = running.log().filter(({ message }) => message === 'request').map(({ request_id }) => request_id);
    assert.deepEqual(told, [...ids, 'four', 'five']);
    assert.equal(running.stdout().split('\n').length, running.log().length + 1, 'and nothing but whole lines');
  });
}

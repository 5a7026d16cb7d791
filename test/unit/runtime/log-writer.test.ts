/**
 * Log lines are written together: in few writes, in order, and in bounded memory even if they are
 * not read.
 */
import assert from 'node:assert/strict';
import { PassThrough, Writable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { formatLine } from '../../../src/commands/text-log.ts';
import { createLineWriter } from '../../../src/platform/runtime/log.ts';
import { variables } from '../../support/gatehouse.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { connectTo, headOf } from '../../support/socket.ts';
import { test } from '../../support/until.ts';

const program = buildProgram();

const MAX_UNWRITTEN = 4 * 1024 * 1024;
const DROPPED = 'log lines dropped: the reader is too slow';

/** A writer whose output is read, or is kept waiting until `read` is called. */
function createWriter({
  isRead = true,
  format,
}: { isRead?: boolean; format?: typeof formatLine } = {}) {
  const writes: string[] = [];
  const waiting: Array<() => void> = [];
  const output = new Writable({
    decodeStrings: false,
    highWaterMark: 1,
    write(text: string, _encoding, done) {
      writes.push(text);
      if (isRead) done();
      else waiting.push(done);
    },
  });
  const read = async () => {
    for (let done = waiting.shift(); done; done = waiting.shift()) {
      done();
      await turn();
    }
  };
  return { lines: createLineWriter(output, format), writes, read };
}

test('the lines of one turn are one write, in order', async () => {
  const { lines, writes } = createWriter();
  for (const text of ['a\n', 'b\n']) lines.write(text);
  await Promise.resolve();
  lines.write('c\n');
  assert.deepEqual(writes, [], 'nothing is written before the turn ends');
  await turn();
  lines.write('d\n');
  await turn();
  await turn();
  assert.deepEqual(writes, ['a\nb\nc\n', 'd\n']);
});

test('close writes at once, and no line twice', async () => {
  const { lines, writes } = createWriter();
  lines.close();
  lines.write('a\n');
  lines.close();
  lines.close();
  assert.deepEqual(writes, ['a\n']);
  lines.write('b\n');
  await turn();
  await turn();
  assert.deepEqual(writes, ['a\n', 'b\n']);
});

test('a line written during a write is neither lost nor out of order', async () => {
  const writes: string[] = [];
  const output = new PassThrough();
  const lines = createLineWriter(output);
  output.write = (text: string) => {
    writes.push(text);
    if (writes.length < 4) lines.write(`after ${writes.length}\n`);
    return true;
  };
  lines.write('first\n');
  for (let count = 0; count < 6; count += 1) await turn();
  assert.deepEqual(writes, ['first\n', 'after 1\n', 'after 2\n', 'after 3\n']);
});

test('lines beyond 4 MiB unwritten are dropped; the next line tells how many', async () => {
  const { lines, read, writes } = createWriter({ isRead: false });
  const long = `${'x'.repeat(64 * 1024 - 1)}\n`;
  for (let count = 0; count < 100; count += 1) {
    lines.write(long);
    if (count % 10 === 9) await turn();
  }
  await read();
  lines.write('last\n');
  await turn();
  await read();
  const kept = writes.join('').split(long).length - 1;
  assert.equal(kept, MAX_UNWRITTEN / long.length + 1);
  const [notice = '', last] = writes
    .join('')
    .slice(kept * long.length)
    .split('\n');
  const { level, message, lines: dropped } = JSON.parse(notice);
  assert.deepEqual([level, message, dropped, last], ['warn', DROPPED, 100 - kept, 'last']);
});

test('dropped lines cause no writes while the reader is stopped; close tells how many', async () => {
  const { lines, read, writes } = createWriter({ isRead: false, format: formatLine });
  lines.write(`{"message":"${'x'.repeat(MAX_UNWRITTEN)}"}\n`);
  await turn();
  for (let count = 0; count < 50; count += 1) {
    lines.write('{"message":"dropped"}\n');
    await turn();
  }
  lines.close();
  lines.close();
  await read();
  assert.equal(writes.length, 2);
  assert.match(writes[1] ?? '', /^\S+ WARN {2}process {2}log lines dropped: .* lines=50\n$/);
});

const PLAIN = { ...variables(), WEBHOOK_VARIANT: 'plain' };

test('a process whose log is not read answers, and ends on SIGTERM', async (t) => {
  const given = { ...PLAIN, INSTANCE_NAME: 'x'.repeat(300), SHUTDOWN_GRACE: '1' };
  const running = startProgram(t, program, ['serve', 'webhook'], given);
  await running.ready('webhook');
  const client = await connectTo(await running.url('webhook'));
  running.stopReading();
  const request = headOf(['GET /livez HTTP/1.1', 'Host: x', `X-Request-Id: ${'y'.repeat(128)}`]);
  // More lines than the pipe holds: the process keeps the rest.
  for (let round = 0; round < 10; round += 1) {
    client.send(request.repeat(50));
    for (let answered = 0; answered < 50; answered += 1)
      assert.equal((await client.answer()).status, 200);
  }
  client.leave();
  running.signal('SIGTERM');
  assert.deepEqual(await running.exited, [0, null]);
});

/** Ends the process in a given way within the turn that gathered the line of the last request. */
function endingBy(how: string): Record<string, string> {
  const code = `import{ServerResponse as R}from'node:http';const e=R.prototype.end;
    R.prototype.end=function(...a){const r=e.apply(this,a);if(this.req.url==='/livez?last'){let n=0;
    const f=()=>n++<200?Promise.resolve().then(f):process.nextTick(()=>{${how}});f()}return r}`;
  return {
    NODE_OPTIONS: `--import=data:text/javascript;base64,${Buffer.from(code).toString('base64')}`,
  };
}

const ENDS: ReadonlyArray<readonly [what: string, how: string, code: number]> = [
  ['process.exit', 'process.exit(7)', 7],
  ['an uncaught error', "throw new Error('of the test')", 1],
  ['a second signal', "process.emit('SIGTERM');process.emit('SIGTERM')", 1],
  ['SIGTERM', "process.kill(process.pid,'SIGTERM')", 0],
];

test('a process writes each line once, however it ends', async (t) => {
  const assertWhole = async ([what, how, code]: (typeof ENDS)[number]) => {
    const environment = { ...PLAIN, ...endingBy(how) };
    const running = startProgram(t, program, ['serve', 'webhook'], environment);
    await running.ready('webhook');
    const client = await connectTo(await running.url('webhook'));
    t.after(() => client.leave());
    const head = (id: string) =>
      headOf([`GET /livez?${id} HTTP/1.1`, 'Host: x', `X-Request-Id: ${id}`]);
    client.send(head('first'));
    assert.equal((await client.answer()).status, 200);
    // Two requests in one packet, so that their lines belong to one turn.
    client.send(head('second') + head('last'));
    assert.deepEqual(await running.ended, { code, signal: null }, what + running.stderr());
    const logged = running.log();
    const ids = logged.flatMap(({ message, request_id: id }) =>
      message === 'request' ? [id] : [],
    );
    assert.deepEqual(ids, ['first', 'second', 'last'], what);
    assert.equal(running.stdout().split('\n').length, logged.length + 1, 'only whole lines');
  };
  await Promise.all(ENDS.map(assertWhole));
});

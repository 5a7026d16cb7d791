/** Log lines for people. */
import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { createLineWriter, createLog } from '../../../src/platform/runtime/log.ts';
import { formatLine } from '../../../src/commands/text-log.ts';

const line = (value: object) =>
  formatLine(`${JSON.stringify({ time: '2026-01-02T03:04:05.678Z', level: 'info', ...value })}\n`);

test('a request is its status, route and duration, then what else is known', () => {
  const request = {
    service: 'identity',
    message: 'request',
    request_id: 'a-b',
    method: 'GET',
    status: 200,
    duration_ms: 1.25,
    ip: '::1',
  };
  assert.equal(
    line({ ...request, route: 'GET /api/test' }),
    '03:04:05.678 INFO  identity 200 GET /api/test 1.25 ms request_id=a-b ip=::1\n',
  );
  assert.equal(
    line({ ...request, route: '(none)' }),
    '03:04:05.678 INFO  identity 200 GET (none) 1.25 ms request_id=a-b ip=::1\n',
  );
});

test('any other line is its message and its members', () => {
  assert.equal(
    line({ service: 'webhook', message: 'ready' }),
    '03:04:05.678 INFO  webhook  ready\n',
  );
  assert.equal(
    line({
      level: 'warn',
      message: 'not ready yet',
      pause_ms: 250,
      error: 'the "x" failed',
      empty: '',
      gone: null,
    }),
    '03:04:05.678 WARN  process  not ready yet pause_ms=250 error="the \\"x\\" failed" empty=""\n',
  );
});

test('control characters and those that reverse a text are escaped, wherever they are', () => {
  const evil = '\u001b[2J\u009b1m\u202e\u2028\r\nnext';
  const formatted = line({ service: evil, message: evil, [evil]: evil, route: evil });
  assert.match(formatted, /^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+\n$/u);
  assert.doesNotMatch(
    line({ message: 'request', method: evil, route: evil, status: evil }).slice(0, -1),
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u,
  );
});

test('the writer formats each line, and the notice of those that were dropped', async () => {
  let text = '';
  const output = new PassThrough({ highWaterMark: 16 * 1024 * 1024 }).on('data', (part) => {
    text += String(part);
  });
  const writer = createLineWriter(output, formatLine);
  const log = createLog('info', writer.write);
  for (let count = 0; count < 6; count += 1) log.info('x'.repeat(1024 * 1024));
  writer.close();
  await new Promise((resolve) => setImmediate(resolve));
  log.info('after');
  writer.close();
  await new Promise((resolve) => setImmediate(resolve));
  assert.match(
    text,
    /^\S+ WARN {2}process {2}log lines dropped: the reader is too slow lines=\d\n/m,
  );
  assert.match(text, /^\S+ INFO {2}process {2}after\n/m);
});

/** Log lines: JSON, and as text for people; and memory of what was seen that stays bounded. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatLine } from '../../../src/commands/text-log.ts';
import { createLog, LOG_LEVELS, type LogLevel } from '../../../src/platform/runtime/log.ts';
import { describeError, Overloaded, Unavailable } from '../../../src/platform/runtime/errors.ts';
import { createRateLimit, createRecentMap } from '../../../src/platform/runtime/rate-limit.ts';
import { trimBlanks } from '../../../src/platform/runtime/text.ts';

const NAMES = ['debug', 'info', 'warn', 'error'] as const;

function memory(level: LogLevel = 'debug') {
  const written: string[] = [];
  return {
    written,
    log: createLog(level, (line) => written.push(line)),
    lines: () => written.map((line): Record<string, unknown> => JSON.parse(line)),
  };
}

test('lower levels are not written, also by derived logs', () => {
  for (const level of LOG_LEVELS) {
    const { log, lines } = memory(level);
    for (const one of [log, log.with({ service: 'identity' })])
      for (const name of NAMES) one[name]('said');
    const expected = level === 'silent' ? [] : NAMES.slice(NAMES.indexOf(level));
    assert.deepEqual(
      lines().map((line) => line.level),
      [...expected, ...expected],
    );
  }
});

test('a line has its time and level first, and its fields last', () => {
  const { log, lines, written } = memory();
  const derived = log.with({ service: 'secrets', app: 'a' }).with({ more: 1 });
  derived.warn('something', { status: 200, open: true, none: null, left_out: undefined });
  assert.match(
    written[0] ?? '',
    /^\{"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z","level":"warn","service":"secrets","app":"a","more":1,"message":"something","status":200,"open":true,"none":null\}\n$/,
  );
  // The original log has no such field.
  log.info('a message');
  assert.equal(lines()[1]?.service, undefined);
});

test('an entry is one line of visible characters, whatever is in a value', () => {
  const { log, lines, written } = memory();
  const odd = [
    ...['a\r\nb', 'a"b\\', '\u0000\u001b[31m', '\ud800', '","level":"error'],
    ...['\u007f\u0085\u009b31m', '\u202eabc', '\u2028\u2029\ufeff\u00ad', '\u{e0041}'],
  ];
  for (const value of odd) log.info(value, { value });
  // A terminal that shows the log must not be controlled by it.
  for (const line of written) assert.match(line, /^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*\n$/u);
  assert.deepEqual(
    lines().map(({ message, value, level }) => [message, value, level]),
    odd.map((value) => [value, value, 'info']),
  );
});

test('a flood of one kind is five lines a second and one that counts the rest', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { log, written, lines } = memory();
  const flood = (route: string, count: number) => {
    for (let number = 1; number <= count; number += 1) log.limited('rejected', { route, number });
  };
  /** What was written since the last call. */
  const taken = () => {
    const rows = lines().map(({ message, route, number, omitted }) =>
      [message, route, number ?? `${omitted} omitted`].join(' '),
    );
    written.length = 0;
    return rows;
  };
  const five = (route: string) => [1, 2, 3, 4, 5].map((number) => `rejected ${route} ${number}`);
  flood('/a', 1_000);
  flood('/b', 6);
  assert.deepEqual(taken(), [...five('/a'), ...five('/b')]);
  t.mock.timers.tick(1_000);
  assert.deepEqual(taken(), ['rejected /a 995 omitted', 'rejected /b 1 omitted']);
  flood('/a', 1);
  assert.deepEqual(taken(), ['rejected /a 1'], 'the next second begins anew');
  // Errors of one route are limited alike, and what has no route is not.
  for (let number = 0; number < 50; number += 1) {
    log.error('failed', { route: '/a', number });
    log.error('moved to dead letters', { number });
  }
  const moved = taken().filter((row) => row.startsWith('moved'));
  assert.equal(moved.length, 50);
  t.mock.timers.tick(1_000);
  assert.deepEqual(taken(), ['failed /a 45 omitted']);
});

const THROWN: ReadonlyArray<readonly [thrown: unknown, said: string]> = [
  [
    new Unavailable('the database did not answer (ECONNREFUSED)', true),
    'the database did not answer (ECONNREFUSED)',
  ],
  [new Overloaded('too many are waiting for a place'), 'too many are waiting for a place'],
  [new TypeError('marked value'), 'TypeError'],
  [new Error('marked value', { cause: new Error('marked cause') }), 'Error'],
  // No line of a message passes for a stack frame.
  [new RangeError('marked\n    at marked (marked.ts:1:1)'), 'RangeError'],
  ['marked value', 'string'],
  [{ message: 'marked value' }, 'object'],
  [undefined, 'undefined'],
];

test('a logged error contains its kind and the stack frame, and no foreign message', () => {
  for (const [thrown, said] of THROWN) {
    const described = describeError(thrown);
    assert.equal(described.error, said);
    assert.ok(!JSON.stringify(described).includes('marked'), JSON.stringify(described));
  }
  assert.match(describeError(new TypeError('here')).stack ?? '', /log\.test\.[jt]s/);
});

const line = (value: object) =>
  formatLine(`${JSON.stringify({ time: '2026-01-02T03:04:05.678Z', level: 'info', ...value })}\n`);

test('as text, a request is its status, route and duration, then what else is known', () => {
  const request = {
    ...{ service: 'identity', message: 'request', request_id: 'a-b', method: 'GET' },
    ...{ status: 200, duration_ms: 1.25, ip: '::1' },
  };
  for (const [route, shown] of [
    ['GET /api/test', 'GET /api/test'],
    ['(none)', 'GET (none)'],
  ])
    assert.equal(
      line({ ...request, route }),
      `03:04:05.678 INFO  identity 200 ${shown} 1.25 ms request_id=a-b ip=::1\n`,
    );
  const others = { pause_ms: 250, error: 'the "x" failed', empty: '', gone: null };
  assert.equal(
    line({ level: 'warn', message: 'not ready yet', ...others }),
    '03:04:05.678 WARN  process  not ready yet pause_ms=250 error="the \\"x\\" failed" empty=""\n',
  );
});

test('as text, control characters and those that reverse a text are escaped everywhere', () => {
  const evil = '\u001b[2J\u009b1m\u202e\u2028\r\nnext';
  for (const value of [
    { service: evil, message: evil, [evil]: evil, route: evil },
    { message: 'request', method: evil, route: evil, status: evil },
  ])
    assert.match(line(value), /^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+\n$/u);
});

test('recent map: keeps the entries that were set last, and forgets those before them', () => {
  const map = createRecentMap<number | null>(100);
  for (let key = 0; key < 1_000; key += 1) {
    map.set('busy', 1);
    map.set(String(key), key);
    assert.equal(map.get('busy'), 1, 'set again and again');
  }
  for (let key = 905; key < 1_000; key += 1) assert.equal(map.get(String(key)), key);
  for (let key = 0; key < 800; key += 1) assert.equal(map.get(String(key)), undefined);
  map.set('950', null);
  assert.equal(map.get('950'), null);
});

test('rate limit: a flood of other keys does not reset a key in use', () => {
  const rate = createRateLimit(2, 1, () => 0);
  for (let key = 0; key < 50_000; key += 1) {
    rate.take(`network ${key}`);
    if (key % 5_000 === 0) rate.add('busy', -2);
    if (key > 5_000) assert.equal(rate.wait('busy'), 1);
  }
});

test('spaces and tabs around a text are removed, and no other character is', () => {
  for (const [text, trimmed] of [
    [' \t ', ''],
    [' \ta=b\t ', 'a=b'],
    ['a \t b', 'a \t b'],
    ['\u00a0a\u00a0', '\u00a0a\u00a0'],
    ['\n a\r', '\n a\r'],
  ] as const)
    assert.equal(trimBlanks(text), trimmed, JSON.stringify(text));
});

/** One JSON object per line, whatever is in it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLog, LOG_LEVELS, type LogLevel } from '../../src/runtime/log.ts';
import { describeError, Overloaded, Unavailable } from '../../src/runtime/errors.ts';

const NAMES = ['debug', 'info', 'warn', 'error'] as const;

function memory(level: LogLevel = 'debug') {
  const written: string[] = [];
  return { written, log: createLog(level, (line) => written.push(line)), lines: () => written.map((line): Record<string, unknown> => JSON.parse(line)) };
}

for (const level of LOG_LEVELS) {
  test(`at level ${level}, what is below it is not written`, () => {
    const { log, lines } = memory(level);
    for (const name of NAMES) log[name]('said');
    const derived = log.with({ service: 'identity' });
    for (const name of NAMES) derived[name]('said');
    const expected = level === 'silent' ? [] : NAMES.slice(NAMES.indexOf(level));
    assert.deepEqual(lines().map((line) => line.level), [...expected, ...expected]);
  });
}

test('a line has its time, level and message first, then its fields', () => {
  const { log, lines, written } = memory();
  log.with({ service: 'secrets', app: 'a' }).with({ more: 1 }).warn('something', { status: 200, open: true, none: null, left_out: undefined });
  const { time, ...rest } = lines()[0] ?? {};
  assert.deepEqual(rest, { level: 'warn', service: 'secrets', app: 'a', more: 1, message: 'something', status: 200, open: true, none: null });
  assert.match(String(time), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.match(written[0] ?? '', /^\{"time":"[^"]*","level":"warn",/);
});

test('an entry is one line, although a value holds line breaks, quotes or half a character', () => {
  const { log, lines, written } = memory();
  const odd = ['a\nb', 'a\r\nb', 'a"b\\', '\u0000\u001b[31m', '\ud800', '","level":"error'];
  for (const value of odd) log.info(value, { value });
  assert.equal(written.length, odd.length);
  for (const line of written) assert.match(line, /^[^\n\r\u0000-\u001f]*\n$/);
  assert.deepEqual(lines().map(({ message, value, level }) => ({ message, value, level })), odd.map((value) => ({ message: value, value, level: 'info' })));
});

test('fields of a derived log do not stick to the one it came from', () => {
  const { log, lines } = memory();
  log.with({ service: 'identity' });
  log.info('plain');
  assert.equal(lines()[0]?.service, undefined);
});

const troubles: ReadonlyArray<readonly [what: string, thrown: unknown, said: string]> = [
  ['our own kinds are told by their message', new Unavailable('the database did not answer (ECONNREFUSED)', true), 'the database did not answer (ECONNREFUSED)'],
  ['so is refused work', new Overloaded('too many are waiting for a place'), 'too many are waiting for a place'],
  ['a foreign error is told by its kind', new TypeError('marked value'), 'TypeError'],
  ['an error with a cause is told without it', new Error('marked value', { cause: new Error('marked cause') }), 'Error'],
  ['a message of several lines does not pass for a place', new RangeError('marked\n    at marked (marked.ts:1:1)'), 'RangeError'],
  ['a thrown text is told by its type', 'marked value', 'string'],
  ['so is a thrown object', { message: 'marked value' }, 'object'],
  ['and nothing at all', undefined, 'undefined'],
];

for (const [what, thrown, said] of troubles) {
  test(`of anything thrown, no foreign message is told: ${what}`, () => {
    const described = describeError(thrown);
    assert.equal(described.error, said);
    assert.ok(!JSON.stringify(described).includes('marked'), JSON.stringify(described));
  });
}

test('an error is told with the place where it was thrown', () => {
  assert.match(describeError(new TypeError('here')).stack ?? '', /log\.test\.ts/);
});

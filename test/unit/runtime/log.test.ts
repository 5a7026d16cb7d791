/** One JSON object per line, whatever its values. */
import assert from 'node:assert/strict';
import { createLog, LOG_LEVELS, type LogLevel } from '../../../src/platform/runtime/log.ts';
import { describeError, Overloaded, Unavailable } from '../../../src/platform/runtime/errors.ts';
import { test, until } from '../../support/until.ts';

const NAMES = ['debug', 'info', 'warn', 'error'] as const;

function memory(level: LogLevel = 'debug') {
  const written: string[] = [];
  return {
    written,
    log: createLog(level, (line) => written.push(line)),
    lines: () => written.map((line): Record<string, unknown> => JSON.parse(line)),
  };
}

for (const level of LOG_LEVELS) {
  test(`level ${level}: lower levels are not written`, () => {
    const { log, lines } = memory(level);
    for (const name of NAMES) log[name]('said');
    const derived = log.with({ service: 'identity' });
    for (const name of NAMES) derived[name]('said');
    const expected = level === 'silent' ? [] : NAMES.slice(NAMES.indexOf(level));
    assert.deepEqual(
      lines().map((line) => line.level),
      [...expected, ...expected],
    );
  });
}

test('a line has its time and level first, and its fields last', () => {
  const { log, lines, written } = memory();
  log
    .with({ service: 'secrets', app: 'a' })
    .with({ more: 1 })
    .warn('something', { status: 200, open: true, none: null, left_out: undefined });
  const { time, ...rest } = lines()[0] ?? {};
  assert.deepEqual(rest, {
    level: 'warn',
    service: 'secrets',
    app: 'a',
    more: 1,
    message: 'something',
    status: 200,
    open: true,
    none: null,
  });
  assert.match(String(time), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.match(written[0] ?? '', /^\{"time":"[^"]*","level":"warn",/);
});

test('an entry is one line of visible characters, whatever is in a value', () => {
  const { log, lines, written } = memory();
  const odd = ['a\nb', 'a\r\nb', 'a"b\\', '\u0000\u001b[31m', '\ud800', '","level":"error'];
  odd.push('\u007f\u0085\u009b31m', '\u202eabc', '\u2028\u2029\ufeff\u00ad', '\u{e0041}');
  for (const value of odd) log.info(value, { value });
  assert.equal(written.length, odd.length);
  // A terminal that shows the log must not be controlled by it.
  for (const line of written) assert.match(line, /^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*\n$/u);
  assert.deepEqual(
    lines().map(({ message, value, level }) => ({ message, value, level })),
    odd.map((value) => ({ message: value, value, level: 'info' })),
  );
});

test('fields of a derived log are not added to the original', () => {
  const { log, lines } = memory();
  log.with({ service: 'identity' });
  log.info('a message');
  assert.equal(lines()[0]?.service, undefined);
});

test('errors of one route are limited like warnings, other errors are all written', () => {
  const { log, lines } = memory();
  for (let number = 0; number < 50; number += 1) {
    log.error('dependency failed', { route: '/a', number });
    log.error('event moved to dead letters', { number });
  }
  const count = (message: string) => lines().filter((line) => line.message === message).length;
  assert.equal(count('dependency failed'), 5);
  assert.equal(count('event moved to dead letters'), 50);
});

test('a flood of one warning is five lines a second and one that counts the rest', async () => {
  const { log, lines } = memory();
  const flood = (route: string, count: number) => {
    for (let number = 1; number <= count; number += 1) log.limited('rejected', { route, number });
  };
  flood('/a', 1_000);
  flood('/b', 6);
  log.limited('another');
  const five = (route: string) =>
    [1, 2, 3, 4, 5].map((number) => ['rejected', route, number, undefined]);
  const rows = () =>
    lines().map(({ message, route, number, omitted }) => [message, route, number, omitted]);
  assert.deepEqual(
    rows(),
    [...five('/a'), ...five('/b'), ['another', undefined, undefined, undefined]],
    'the first of each kind at once',
  );
  await until(() => lines().length === 13);
  assert.deepEqual(rows().slice(11), [
    ['rejected', '/a', undefined, 995],
    ['rejected', '/b', undefined, 1],
  ]);
  flood('/a', 1);
  assert.deepEqual(
    rows().slice(13),
    [['rejected', '/a', 1, undefined]],
    'the next second begins anew',
  );
});

const THROWN: ReadonlyArray<readonly [what: string, thrown: unknown, said: string]> = [
  [
    'Unavailable: its message',
    new Unavailable('the database did not answer (ECONNREFUSED)', true),
    'the database did not answer (ECONNREFUSED)',
  ],
  [
    'Overloaded: its message',
    new Overloaded('too many are waiting for a place'),
    'too many are waiting for a place',
  ],
  ['a foreign error: its kind', new TypeError('marked value'), 'TypeError'],
  [
    'an error with a cause: its kind only',
    new Error('marked value', { cause: new Error('marked cause') }),
    'Error',
  ],
  [
    'a message of several lines: no line passes for a stack frame',
    new RangeError('marked\n    at marked (marked.ts:1:1)'),
    'RangeError',
  ],
  ['a thrown string: its type', 'marked value', 'string'],
  ['a thrown object: its type', { message: 'marked value' }, 'object'],
  ['undefined: its type', undefined, 'undefined'],
];

for (const [what, thrown, said] of THROWN) {
  test(`a logged error contains no foreign message: ${what}`, () => {
    const described = describeError(thrown);
    assert.equal(described.error, said);
    assert.ok(!JSON.stringify(described).includes('marked'), JSON.stringify(described));
  });
}

test('a logged error has the stack frame that threw it', () => {
  assert.match(describeError(new TypeError('here')).stack ?? '', /log\.test\.[jt]s/);
});

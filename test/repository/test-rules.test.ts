/** What would let a test pass without having looked: each is refused by the runner. */
import assert from 'node:assert/strict';
import { join, relative } from 'node:path';
import { test } from 'node:test';
import { compareCodes, readNoted } from '../../scripts/reply-codes.ts';
import { findTests } from '../../scripts/test-copy.ts';
import { findLateAwait, findNarrowing, findSilentSkip } from '../../scripts/test-rules.ts';

const narrow = 'only';

test('a transcript is run by the file of all, and a wrong name is answered with what exists', () => {
  const root = join(import.meta.dirname, '../..');
  const find = (name: string) => findTests(join(root, name)).map((file) => relative(root, file));
  const runner = 'test/program/transcripts.test.ts';
  assert.deepEqual(find('test/program/transcripts/users.txt'), [runner]);
  const message =
    /^There is no test\/program\/transcripts\/user\.txt\. .* tokens\.txt, .*users\.txt\.$/;
  assert.throws(() => find('test/program/transcripts/user.txt'), { message });
  assert.throws(() => find('test/nowhere/a.test.ts'), { message: /Name files or folders of test/ });
});

test('a skipped or unfinished test must give a reason', () => {
  const skip = (event: object) => findSilentSkip({ name: 'a test', ...event });
  for (const event of [{ skip: true }, { todo: true }, { skip: '' }, { skip: ' ' }])
    assert.match(skip(event) ?? '', /without a reason: "a test"/);
  for (const event of [{}, { skip: false }, { todo: false }, { skip: 'needs a tape' }])
    assert.equal(skip(event), undefined);
});

test('every spelling of only is found', () => {
  const find = (line: string) => findNarrowing('a.test.ts', `// first line\n${line}`);
  for (const line of [
    `test.${narrow}('x')`,
    `describe.${narrow} ('x')`,
    `{ ${narrow}: true }`,
    `context.run${'Only'}(true)`,
  ])
    assert.deepEqual(find(line), ['narrowed with only: a.test.ts:2']);
  assert.deepEqual(find(`{ ${narrow}: false } // the only true one; readonly: true`), []);
});

test('a file that waits between its tests is found', () => {
  const first = "test('x', f);\n";
  for (const line of [
    'await open();',
    'const one = await open({',
    'for await (const one of all()) {}',
    'for (const one of all) {\n  await one;\n}',
  ]) {
    assert.equal(findLateAwait('a.test.ts', first + line).length, 1, line);
    assert.equal(findLateAwait('a.test.ts', `for (;;) {\n  ${first}}\n${line}`).length, 1, line);
    assert.deepEqual(findLateAwait('a.test.ts', line + first), [], line);
  }
  for (const fine of [
    "test('y', async () => {\n  await f();\n});",
    'const open = async () => await f();',
    'async function open() {\n  await f();\n}',
    '// await it',
    "for (;;) {\n  test('y', async () => {\n    await f();\n  });\n}",
  ])
    assert.deepEqual(findLateAwait('a.test.ts', first + fine), [], fine);
});

test('a code that a row does not declare, or that no test causes, is found', () => {
  const lineOf = (route: string, code: string) =>
    `gatehouse_requests_refused_total{service="webhook",route="${route}",reason="${code}"} 1\n`;
  const rows = [
    { method: 'GET', pattern: '/a', errors: ['not_found', 'conflict', 'internal'] },
    { method: 'GET', pattern: '/pages/{file}', errors: ['invalid_path', 'not_found'] },
  ] as const;
  const noted = readNoted(
    lineOf('GET /a', 'conflict') +
      lineOf('GET /a', 'forbidden') +
      lineOf('GET /b', 'internal') +
      lineOf('(none)', 'no_such_path') +
      lineOf('GET /pages/{file}', 'not_found'),
  );
  const undeclared = [
    'webhook GET /a sends, but does not declare: forbidden',
    'webhook GET /b sends, but does not declare: internal',
  ];
  assert.deepEqual(compareCodes(noted, { webhook: rows }, false), undeclared);
  assert.deepEqual(compareCodes(noted, { webhook: rows }, true), [
    ...undeclared,
    'webhook GET /a declares, but no test causes: not_found',
  ]);
});

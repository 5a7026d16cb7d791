/** What would let a test pass without having looked: each is refused by the runner. */
import assert from 'node:assert/strict';
import { join, relative } from 'node:path';
import { test } from 'node:test';
import { root } from '../../scripts/reading.ts';
import { compareCodes, readNoted } from '../../scripts/reply-codes.ts';
import { findTests } from '../../scripts/test-copy.ts';
import { findSilentSkip } from '../../scripts/test-rules.ts';

test('a transcript is run by the file of all, and a wrong name is answered with what exists', () => {
  const find = (name: string) => findTests(join(root, name)).map((file) => relative(root, file));
  const transcripts = 'test/program/transcripts';
  assert.deepEqual(find(`${transcripts}/users.txt`), [`${transcripts}.test.ts`]);
  assert.throws(() => find(`${transcripts}/user.txt`), /There is no .*\. .* users\.txt\.$/m);
});

test('a skipped or unfinished test must give a reason', () => {
  const skip = (event: object) => findSilentSkip({ name: 'a test', ...event });
  for (const event of [{ skip: true }, { todo: true }, { skip: '' }, { skip: ' ' }])
    assert.match(skip(event) ?? '', /without a reason: "a test"/);
  for (const event of [{}, { skip: false }, { todo: false }, { skip: 'needs a tape' }])
    assert.equal(skip(event), undefined);
});

test('a code that a row does not declare, or that no test causes, is found', () => {
  const sent = { '/a': 'conflict', '/b': 'internal', '/pages/{file}': 'not_found' };
  const lines = Object.entries(sent).map(
    ([path, code]) =>
      `gatehouse_requests_refused_total{service="webhook",route="GET ${path}",reason="${code}"} 1`,
  );
  const tables = {
    webhook: [
      { method: 'GET', pattern: '/a', errors: ['not_found', 'conflict', 'internal'] },
      { method: 'GET', pattern: '/pages/{file}', errors: ['invalid_path', 'not_found'] },
    ],
  } as const;
  const undeclared = 'webhook GET /b sends, but does not declare: internal';
  const noted = readNoted(lines.join('\n'));
  assert.deepEqual(compareCodes(noted, tables, false), [undeclared]);
  const uncaused = 'webhook GET /a declares, but no test causes: not_found';
  assert.deepEqual(compareCodes(noted, tables, true), [undeclared, uncaused]);
});

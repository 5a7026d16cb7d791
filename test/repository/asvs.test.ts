/** docs/asvs.md: every requirement has a verdict and evidence. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readDocument as read } from '../support/documents.ts';

/**
 * The requirements of Level 1 and 2 that apply. One that disappears from the document would be
 * missed otherwise.
 */
const EXPECTED: Readonly<Record<string, string>> = {
  1: `
    1.2.4 2.2.1 3.3.1 3.5.1 4.1.1 6.1.1 6.2.1 6.2.2 6.2.3 6.2.4 6.2.5 6.2.8 6.3.1 6.3.2 6.4.1
    7.2.2 7.2.3 7.2.4 7.4.1 7.4.2 8.1.1 8.2.1 8.2.2 8.3.1 10.4.1 10.4.2 10.4.3 10.4.4 10.4.5 11.3.2
    11.4.1 14.2.1 15.3.1`,
  2: `
    1.3.6 2.3.3 2.4.1 3.3.3 4.1.3 4.2.1 6.1.2 6.2.9 6.2.11 6.2.12 6.3.3 6.5.1 6.5.2 6.5.5 7.1.1
    7.1.2 7.3.1 7.3.2 7.4.3 7.4.5 7.5.1 7.5.2 8.2.3 10.3.1 10.4.6 10.4.8 10.4.9 10.4.10 10.4.11
    10.6.1 10.6.2 10.7.1 10.7.2 10.7.3 11.1.2 11.2.2 11.3.3 11.4.2 11.5.1 12.3.1
    13.2.1 13.2.2 13.3.1 13.4.4 13.4.5 14.3.2 15.1.3 15.2.2 15.3.3 15.3.4 15.3.5 15.3.6 16.2.1
    16.2.5 16.3.1 16.3.2 16.3.3 16.4.1 16.4.2 16.5.1 16.5.2 16.5.3`,
};

const rows = read('docs/asvs.md')
  .split('\n')
  .filter((line) => /^\| \d/.test(line))
  .map((line) => {
    const cells = line.slice(1, -1).split('|');
    assert.equal(cells.length, 5, line);
    const [id = '', level = '', requirement = '', verdict = '', evidence = ''] = cells.map((cell) =>
      cell.trim(),
    );
    return { id, level, requirement, verdict, evidence };
  });

test('every requirement is listed once, with a sentence, and none is missing', () => {
  const ids = rows.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length, 'a requirement is listed twice');
  for (const { level, requirement, id } of rows)
    assert.match(`${level} ${requirement}`, /^[123] [A-Z].*\.$/, id);
  for (const [level, expected] of Object.entries(EXPECTED)) {
    const listed = rows.filter((row) => row.level === level).map(({ id }) => id);
    assert.deepEqual(listed.sort(), expected.trim().split(/\s+/).sort(), level);
  }
});

test('every verdict is one of three, and has its evidence or its reason', () => {
  for (const { id, verdict, evidence } of rows) {
    assert.ok(['met', 'not met', 'not applicable'].includes(verdict), `${id}: "${verdict}"`);
    const words = evidence.replaceAll(/`[^`]*`/g, '').split(/\s+/).length;
    if (verdict !== 'met') {
      assert.ok(words >= 4, `${id} has no reason`);
      continue;
    }
    const files = evidence.match(/`((src|test|scripts|docs)\/[^`]+|[A-Z]+\.md)`/g) ?? [];
    const tests = files.filter((name) => name.endsWith('.test.ts`'));
    assert.ok(files.length > tests.length, `${id} names neither a source file nor a document`);
    assert.ok(tests.length > 0, `${id} names no test`);
  }
});

test('the requirements that are not met come first, together, and SECURITY.md leads there', () => {
  const verdicts = rows.map(({ verdict }) => verdict === 'not met');
  assert.ok(verdicts.lastIndexOf(true) < verdicts.indexOf(false));
  assert.match(read('SECURITY.md'), /\]\(docs\/asvs\.md#not-met\)/);
});

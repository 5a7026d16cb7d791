import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseTarget } from '../../../src/platform/http/route/router.ts';
import { seeded } from '../../support/random.ts';

/** The canonical form. A trailing slash that does not matter is left out. */
function printTarget({
  segments,
  query,
}: Pick<NonNullable<ReturnType<typeof parseTarget>>, 'segments' | 'query'>): string {
  const slash = segments.length > 1 && segments.at(-1) === '' ? '/' : '';
  const pairs = [...query].map((pair) => pair.map(encodeURIComponent).join('='));
  return `/${segments.map(encodeURIComponent).join('/')}${slash}${pairs.length > 0 ? '?' : ''}${pairs.join('&')}`;
}

test('every request target that parses has a canonical form with the same segments and query', () => {
  const random = seeded(3);
  const alphabet = [
    ...'/a%2Fb?=&+#.:;@\u00e9',
    '%',
    '%2e',
    '%00',
    '%c3%a9',
    '%ff',
    '%zz',
    '//',
    '?',
    '__proto__=',
  ];
  const counts = { parsed: 0, rejected: 0 };
  for (let round = 0; round < 20_000; round += 1) {
    const parts = Array.from({ length: random(12) }, () => alphabet[random(alphabet.length)] ?? '');
    const target = `${random(10) === 0 ? '' : '/'}${parts.join('')}`;
    const parsed = parseTarget(target);
    counts[parsed === null ? 'rejected' : 'parsed'] += 1;
    if (parsed === null) continue;
    const canonical = printTarget(parsed);
    const again = parseTarget(canonical) ?? assert.fail(`${target} became ${canonical}`);
    assert.deepEqual(
      [again.segments, [...again.query]],
      [parsed.segments, [...parsed.query]],
      target,
    );
    assert.equal(printTarget(again), canonical);
  }
  assert.ok(counts.parsed > 1_000 && counts.rejected > 1_000, JSON.stringify(counts));
});

test('any segments and query values survive being printed and parsed', () => {
  const random = seeded(4);
  const alphabet = [...'/a%?=&+#.:\0 \u00e9\u{1f511}', '%41', '%2F', '..', '__proto__'];
  const text = () =>
    Array.from({ length: random(5) }, () => alphabet[random(alphabet.length)] ?? '').join('');
  for (let round = 0; round < 20_000; round += 1) {
    const segments = [`x${text()}`, ...Array.from({ length: random(3) }, text)];
    const query = new URLSearchParams(
      Array.from({ length: random(5) }, (): [string, string] => [text(), text()]),
    );
    const target = printTarget({ segments, query });
    const parsed = parseTarget(target) ?? assert.fail(target);
    assert.deepEqual([parsed.segments, [...parsed.query]], [segments, [...query]], target);
  }
});

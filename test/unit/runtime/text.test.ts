import assert from 'node:assert/strict';
import { test } from 'node:test';
import { trimBlanks } from '../../../src/platform/runtime/text.ts';

test('spaces and tabs around a text are removed, and no other character is', () => {
  for (const [text, trimmed] of [
    ['', ''],
    [' \t ', ''],
    ['a', 'a'],
    [' \ta=b\t ', 'a=b'],
    ['a \t b', 'a \t b'],
    ['\u00a0a\u00a0', '\u00a0a\u00a0'],
    ['\n a\r', '\n a\r'],
    [` a\nb `, 'a\nb'],
  ] as const)
    assert.equal(trimBlanks(text), trimmed, JSON.stringify(text));
});

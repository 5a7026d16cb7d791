/** A cookie header full of spaces costs no more than one full of letters. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startPortal } from '../../../support/portal.ts';

const { visit } = await startPortal({ after });

test('no pattern is replaced in a cookie that has many spaces within', async () => {
  const { replace } = String.prototype;
  let longest = 0;
  Object.defineProperty(String.prototype, 'replace', {
    configurable: true,
    writable: true,
    value(this: string, ...given: Parameters<typeof replace>) {
      if (/ {100}/.test(this)) longest = Math.max(longest, this.length);
      return replace.apply(this, given);
    },
  });
  try {
    const cookie = `a${' '.repeat(15_000)}b`;
    for (const path of ['/login', '/account', '/api/auth/verify']) {
      const { status } = await visit(path, { cookie });
      assert.ok(status < 500, `${path}: ${status}`);
    }
  } finally {
    Object.defineProperty(String.prototype, 'replace', {
      configurable: true,
      writable: true,
      value: replace,
    });
  }
  assert.equal(longest, 0);
});

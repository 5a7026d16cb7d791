/** What keyboards and checkers of spelling do with the fields of the pages. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const source = join(import.meta.dirname, '../../src');
const pages = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter((path) =>
  /\/pages\/.*\.html$/.test(path),
);

test('a field that is not checked for spelling is not corrected either, and no secret is checked', () => {
  let fields = 0;
  for (const path of pages) {
    const text = readFileSync(join(source, path), 'utf8');
    for (const [tag] of text.matchAll(/<(?:input|textarea)\b[^>]*>/g)) {
      // The state of a field is filled in: test/api/identity/signin/forms.test.ts.
      if (/\breadonly\b|\.state\}\}|type="url"/.test(tag)) continue;
      const isSecret = /type="password"|id="(secret|passphrase)"/.test(tag);
      if (!isSecret && !tag.includes('spellcheck="false"')) continue;
      fields += 1;
      assert.match(tag, /autocapitalize="none" autocorrect="off" spellcheck="false"/, path);
    }
  }
  assert.ok(fields > 15, String(fields));
});

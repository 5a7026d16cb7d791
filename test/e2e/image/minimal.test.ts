/** The image of Dockerfile.minimal, built and run. */
import assert from 'node:assert/strict';
import { lstatSync } from 'node:fs';
import { join } from 'node:path';
import { sizeOf, testImage } from './cases.ts';

await testImage('Dockerfile.minimal', ({ files }, own) => {
  const others = own.filter(
    (name) => !name.startsWith('app/') && lstatSync(join(files, name)).isFile(),
  );
  const libraries = others.filter((name) => /^lib.*\.so/.test(name));
  const expected = [
    'etc/group',
    'etc/passwd',
    'usr/bin/env',
    'usr/local/LICENSE',
    'usr/local/bin/node',
  ];
  assert.deepEqual(
    others.filter((name) => !libraries.includes(name)),
    expected,
  );
  assert.ok(libraries.length >= 5 && libraries.length <= 10, libraries.join());
  const bytes = sizeOf(files, own);
  const node = sizeOf(files, ['usr/local/bin/node']);
  const shown = [bytes, node].map((size) => `${(size / 1e6).toFixed(0)} MB`);
  process.stdout.write(`image: ${shown[0]}, of which Node ${process.version} has ${shown[1]}\n`);
  assert.ok(bytes - node < 12e6, 'the rest is small');
});

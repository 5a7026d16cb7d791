/** The image of Dockerfile.minimal, built and run. */
import assert from 'node:assert/strict';
import { lstatSync } from 'node:fs';
import { join } from 'node:path';
import { testImage } from './cases.ts';

await testImage('Dockerfile.minimal', ({ files }, own) => {
  const others = own.filter((name) => !name.startsWith('app/') && lstatSync(join(files, name)).isFile());
  const libraries = others.filter((name) => /^lib.*\.so/.test(name));
  assert.deepEqual(others.filter((name) => !libraries.includes(name)), ['etc/group', 'etc/passwd', 'usr/bin/env', 'usr/local/bin/node']);
  assert.ok(libraries.length >= 5 && libraries.length <= 10, libraries.join());
  const bytes = own.map((name) => lstatSync(join(files, name))).filter((file) => file.isFile()).reduce((sum, { size }) => sum + size, 0);
  const node = lstatSync(join(files, 'usr/local/bin/node')).size;
  process.stdout.write(`image: ${(bytes / 1e6).toFixed(0)} MB, of which Node ${process.version} has ${(node / 1e6).toFixed(0)} MB\n`);
  assert.ok(bytes - node < 12e6, 'the rest is small');
});

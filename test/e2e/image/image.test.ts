/** The image of Dockerfile, built and run. */
import assert from 'node:assert/strict';
import { testImage } from './cases.ts';

await testImage('Dockerfile', (_container, own) => {
  assert.deepEqual(
    own.filter((name) => !name.startsWith('app/')),
    ['app', 'usr/local/bin/gatehouse'],
  );
});

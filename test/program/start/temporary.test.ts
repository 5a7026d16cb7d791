import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';

test('only the directories of killed processes are removed', (t) => {
  const parent = mkdtempSync(join(tmpdir(), 'gatehouse-temporary-'));
  t.after(() => removeTemporary(parent));
  const dead = spawnSync('true').pid;
  const forgotten = join(parent, `purpose-${dead}-x`);
  const foreign = join(parent, `other-${dead}-x`);
  const nameless = join(parent, 'purpose-x');
  for (const path of [forgotten, foreign, nameless]) mkdirSync(path);

  const first = makeTemporary(parent, 'purpose');
  const second = makeTemporary(parent, 'purpose');
  const present = [forgotten, foreign, nameless, first, second].map((path) => existsSync(path));
  assert.deepEqual(present, [false, true, true, true, true]);
});

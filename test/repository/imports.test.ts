/** Nothing happens at import: no module reads or starts anything before it is called. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { readTree, root } from '../../scripts/reading.ts';
import { makeDirectory } from '../support/directories.ts';

/** @returns what the modules did at import, such as `platform/db/url.js: readFileSync` */
async function doneAtImport(folder: string, files: readonly string[]): Promise<string[]> {
  const program = join(root, 'test/support/import-all.mjs');
  const paths = files.map((file) => join(folder, file));
  const words = [program, folder, ...paths];
  const { stdout } = await promisify(execFile)(process.execPath, words, { env: {} });
  return JSON.parse(stdout);
}

test('no module reads a file, the environment or a limit, parses a URL or sets a timer', async (t) => {
  // The program itself is run, not imported.
  const modules = [...readTree('dist', /\.js$/).keys()]
    .map((name) => name.slice('dist/'.length))
    .filter((name) => !name.includes('pages/') && !['cli.js', 'main.js'].includes(name));
  assert.ok(modules.length > 100);
  assert.deepEqual(await doneAtImport(join(root, 'dist'), modules), []);

  const planted = {
    readFileSync: "import * as fs from 'node:fs'; fs.readFileSync('/dev/null');",
    env: 'process.env.HOME;',
    constrainedMemory: 'process.constrainedMemory();',
    URL: "new URL('postgres://user@host/database');",
    setTimeout: 'setTimeout(() => {}, 1);',
  };
  const folder = makeDirectory(t, 'imports');
  for (const [what, text] of Object.entries(planted))
    writeFileSync(join(folder, `${what}.mjs`), text);
  const names = Object.keys(planted);
  assert.deepEqual(
    await doneAtImport(
      folder,
      names.map((what) => `${what}.mjs`),
    ),
    names.map((what) => `${what}.mjs: ${what}`),
  );
});

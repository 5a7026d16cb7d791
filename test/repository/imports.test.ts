/** Nothing happens at import: no module reads or starts anything before it is called. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { buildProgram } from '../support/process.ts';

const run = promisify(execFile);
const dist = join(buildProgram(), 'dist');

/** The program itself. They are run, not imported. */
const ENTRIES = ['cli.js', 'main.js'];

test('no module reads a file, the environment or a limit, parses a URL or sets a timer', async () => {
  const names = readdirSync(dist, { recursive: true, encoding: 'utf8' });
  const modules = names.filter(
    (name) => name.endsWith('.js') && !name.includes('pages/') && !ENTRIES.includes(name),
  );
  assert.ok(modules.length > 100);
  const program = join(import.meta.dirname, '../support/import-all.mjs');
  const paths = modules.map((file) => join(dist, file));
  const { stdout } = await run(process.execPath, [program, dist, ...paths], { env: {} });
  assert.deepEqual(JSON.parse(stdout), []);
});

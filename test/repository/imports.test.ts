/** Nothing happens at import: no module reads or starts anything before it is called. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { buildProgram } from '../support/process.ts';

const run = promisify(execFile);
const dist = join(buildProgram(), 'dist');

/** The program itself. They are run, not imported. */
const ENTRIES = ['cli.js', 'main.js'];

/** @returns what the modules did, such as `platform/db/url.js: readFileSync` */
async function doneAtImport(folder: string, files: readonly string[]): Promise<string[]> {
  const program = join(import.meta.dirname, '../support/import-all.mjs');
  const paths = files.map((file) => join(folder, file));
  const { stdout } = await run(process.execPath, [program, folder, ...paths], { env: {} });
  return JSON.parse(stdout);
}

test('no module reads a file, the environment or a limit, parses a URL or sets a timer', async () => {
  const names = readdirSync(dist, { recursive: true, encoding: 'utf8' });
  const modules = names.filter(
    (name) => name.endsWith('.js') && !name.includes('pages/') && !ENTRIES.includes(name),
  );
  assert.ok(modules.length > 100);
  assert.deepEqual(await doneAtImport(dist, modules), []);
});

const PLANTED: ReadonlyArray<readonly [what: string, text: string]> = [
  ['readFileSync', "import { readFileSync } from 'node:fs'; readFileSync('/dev/null');"],
  ['readFileSync', "import * as fs from 'node:fs'; fs.readFileSync('/dev/null');"],
  ['env', 'process.env.HOME;'],
  ['constrainedMemory', 'process.constrainedMemory();'],
  ['URL', "new URL('postgres://user@host/database');"],
  ['setTimeout', 'setTimeout(() => {}, 1);'],
];

test('what a module does at import is noticed', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'gatehouse-imports-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const files = PLANTED.map((_, index) => `${index}.mjs`);
  PLANTED.forEach(([, text], index) => writeFileSync(join(folder, `${index}.mjs`), text));
  const expected = PLANTED.map(([what], index) => `${index}.mjs: ${what}`);
  assert.deepEqual(await doneAtImport(folder, files), expected);
});

/** A target that would fail every attempt stops the start. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { variables } from '../../support/gatehouse.ts';
import { buildProgram, runProgram } from '../../support/process.ts';

const directory = mkdtempSync(join(tmpdir(), 'gatehouse-refused-'));
after(() => rmSync(directory, { recursive: true, force: true }));
writeFileSync(join(directory, 'no-program'), '', { mode: 0o644 });
mkdirSync(join(directory, 'empty'));
const program = buildProgram();
const file = await createDatabase();

const WRONG: ReadonlyArray<readonly [name: string, value: string, said: RegExp]> = [
  [
    'WEBHOOK_COMMAND',
    JSON.stringify([join(directory, 'missing'), 'x']),
    /^gatehouse: webhook: WEBHOOK_COMMAND names a program that cannot be run \(ENOENT\)\.\n$/,
  ],
  [
    'WEBHOOK_COMMAND',
    JSON.stringify([join(directory, 'no-program')]),
    /^gatehouse: webhook: WEBHOOK_COMMAND names a program that cannot be run \(EACCES\)\.\n$/,
  ],
  [
    'WEBHOOK_HANDLER',
    join(directory, 'missing.mjs'),
    /^gatehouse: webhook: WEBHOOK_HANDLER names a module that cannot be read \(ENOENT\)\.\n$/,
  ],
  [
    'WEBHOOK_FORWARD_URL',
    'http://127.0.0.1:9/',
    /^gatehouse: webhook: WEBHOOK_FORWARD_URL: the target is a private address; set \S+=on to allow it\.\n$/,
  ],
  [
    'WEBHOOK_FORWARD_URL',
    'http://[::ffff:10.0.0.1]/',
    /^gatehouse: webhook: WEBHOOK_FORWARD_URL: the target is a private address/,
  ],
];
for (const [name, value, said] of WRONG) {
  test(`${name}=${value.replace(directory, '…')} stops the start with one line`, async (t) => {
    const { code, stderr } = await runProgram(t, program, ['serve', 'webhook'], {
      ...variables(file.url),
      [name]: value,
    });
    assert.equal(code, 1);
    assert.match(stderr.replace(/^webhook: created the first token[^\n]*\n/, ''), said);
  });
}

test('migrate ignores invalid targets', async () => {
  const [name = '', value = ''] = WRONG[0] ?? [];
  const given = { ...variables(file.url), [name]: value };
  assert.equal((await runCommand(['migrate', 'webhook'], given)).code, 0);
});

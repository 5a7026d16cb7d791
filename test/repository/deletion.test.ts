/** Each service can be deleted from the tree, and what remains compiles. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { importsOf, readTree, root, serviceNames } from '../../scripts/reading.ts';

const source = readTree();
const run = promisify(execFile);

for (const service of serviceNames(source)) {
  test(`${service} can be deleted: its folder, its commands, and its lines in serve.ts and main.ts`, async (context) => {
    const copy = mkdtempSync(join(tmpdir(), 'gatehouse-without-'));
    context.after(() => rmSync(copy, { recursive: true, force: true }));
    cpSync(join(root, 'src'), join(copy, 'src'), { recursive: true });
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
    const { compilerOptions }: { compilerOptions: object } = JSON.parse(
      readFileSync(join(root, 'tsconfig.json'), 'utf8'),
    );
    writeFileSync(join(copy, 'package.json'), '{"type": "module"}');
    writeFileSync(
      join(copy, 'tsconfig.json'),
      JSON.stringify({ compilerOptions, include: ['src'] }),
    );
    const own = [...source].filter(
      ([file, text]) =>
        file.startsWith('src/commands/') &&
        importsOf(file, text).some((name) => name.startsWith(`src/${service}/`)),
    );
    assert.ok(own.length > 0, 'it has commands');
    for (const [file] of own) rmSync(join(copy, file));
    rmSync(join(copy, 'src', service), { recursive: true });
    for (const file of ['src/serve.ts', 'src/main.ts']) {
      const text = source.get(file) ?? '';
      // An entry ends with the line before the next member, or before the end of the table.
      const entry = new RegExp(`^  ${service}: .*\\n(?: {3,}.*\\n|  [)\\]}].*\\n)*`, 'gm');
      assert.equal(text.match(entry)?.length, 1, `${file} has one entry for ${service}`);
      writeFileSync(join(copy, file), text.replace(entry, ''));
    }
    // More threads are no faster beside other tests, and cost half as much again.
    const compiler = [join(root, 'node_modules/typescript/bin/tsc'), '--singleThreaded'];
    await run(process.execPath, [...compiler, '-p', copy]).catch((error: { stdout?: string }) =>
      assert.fail(error.stdout),
    );
  });
}

/** Each service can be deleted from the tree, and what remains compiles. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { importsOf, readTree, root, serviceNames } from '../../scripts/reading.ts';
import { makeDirectory } from '../support/directories.ts';

const source = readTree();
const run = promisify(execFile);

/** Deletes a service: its folder, its commands, and its lines in serve.ts and main.ts. */
function writeWithout(service: string, copy: string): void {
  // What stays as it is, and imports nothing of this, is one for all copies.
  const linked = ['platform', ...serviceNames(source)].map((name) => join(root, 'src', name));
  const filter = (path: string) => !linked.includes(path);
  cpSync(join(root, 'src'), join(copy, 'src'), { recursive: true, filter });
  for (const path of linked.filter((one) => basename(one) !== service))
    symlinkSync(path, join(copy, 'src', basename(path)));
  const own = [...source].filter(
    ([file, text]) =>
      file.startsWith('src/commands/') &&
      importsOf(file, text).some((name) => name.startsWith(`src/${service}/`)),
  );
  assert.ok(own.length > 0, 'it has commands');
  for (const [file] of own) rmSync(join(copy, file));
  for (const file of ['src/serve.ts', 'src/main.ts']) {
    const text = source.get(file) ?? '';
    // An entry ends with the line before the next member, or before the end of the table.
    const entry = new RegExp(`^  ${service}: .*\\n(?: {3,}.*\\n|  [)\\]}].*\\n)*`, 'gm');
    assert.equal(text.match(entry)?.length, 1, `${file} has one entry for ${service}`);
    writeFileSync(join(copy, file), text.replace(entry, ''));
  }
}

test('without any one of the services, what remains compiles', async (context) => {
  const place = makeDirectory(context, 'without');
  symlinkSync(join(root, 'node_modules'), join(place, 'node_modules'));
  writeFileSync(join(place, 'package.json'), '{"type": "module"}');
  for (const service of serviceNames(source)) writeWithout(service, join(place, service));
  const { compilerOptions }: { compilerOptions: object } = JSON.parse(
    readFileSync(join(root, 'tsconfig.json'), 'utf8'),
  );
  writeFileSync(
    join(place, 'tsconfig.json'),
    JSON.stringify({ compilerOptions, include: ['*/src/*.ts', '*/src/commands'] }),
  );
  // Together, they take less than two of them alone: the types of Node are read and checked once.
  // More threads are no faster beside other tests, and cost half as much again.
  const compiler = [join(root, 'node_modules/typescript/bin/tsc'), '--singleThreaded'];
  await run(process.execPath, [...compiler, '-p', place]).catch((error: { stdout?: string }) =>
    assert.fail(error.stdout),
  );
});

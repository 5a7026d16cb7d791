import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { changesSince, isCommit } from '../../scripts/audit-changes.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { ask, startGatehouse } from '../support/gatehouse.ts';
import { PORTAL } from '../support/portal.ts';

const SERVICES = ['identity', 'secrets', 'webhook'] as const;
const run = promisify(execFile);
const root = dirname(dirname(import.meta.dirname));

interface OpenApi {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}
interface Operation {
  readonly security?: ReadonlyArray<Readonly<Record<string, unknown>>>;
}

/** Method, pattern and credentials of each route that a service describes. */
function describedRoutes({ paths }: OpenApi): string[] {
  return Object.entries(paths).flatMap(([pattern, operations]) =>
    Object.entries(operations).map(([method, { security = [] }]) => {
      const credentials = security.flatMap((scheme) => Object.keys(scheme)).join('|');
      return [method.toUpperCase(), pattern, credentials || 'none'].join(' ');
    }),
  );
}

/** Those that `make audit` prints for a service. */
function printedRoutes(output: string, service: string): string[] {
  const section = output.split('=== serve ').find((text) => text.startsWith(service)) ?? '';
  const list = /\nRoutes: .*\n((?: {2}.*\n)+)/.exec(section)?.[1] ?? '';
  const lines = list.trimEnd().split('\n');
  return lines.map((line) => line.trim().split(/ +/).slice(0, 3).join(' '));
}

test('the audit lists every route that a service serves, with its method and its credentials', async (context) => {
  const database = await createEmptyDatabase(context);
  const pages = { ...PORTAL, SHARE_PAGES: 'on', INBOX_PAGE: 'on' };
  const { url } = await startGatehouse(context, SERVICES, database.url, pages);
  const audit = await run(process.execPath, ['--import', 'tsx', 'scripts/audit.ts'], { cwd: root });
  for (const service of SERVICES) {
    const { json } = await ask('GET', `${url[service]}/openapi.json`);
    const described = describedRoutes(json).sort();
    assert.ok(described.includes('GET /openapi.json none'), service);
    assert.deepEqual(printedRoutes(audit.stdout, service).sort(), described, service);
  }
});

test('the changes since a review are the changed declarations, moved and removed files', (context) => {
  const folder = mkdtempSync(join(tmpdir(), 'gatehouse-review-'));
  context.after(() => rmSync(folder, { recursive: true, force: true }));
  const git = (...words: string[]) => {
    const identity = ['-c', 'user.name=test', '-c', 'user.email=test@example.org'];
    return execFileSync('git', [...identity, ...words], { cwd: folder, encoding: 'utf8' }).trim();
  };
  const write = (file: string, ...lines: string[]) =>
    writeFileSync(join(folder, 'src', file), `${lines.join('\n')}\n`);
  mkdirSync(join(folder, 'src'));
  git('init', '--quiet');
  const first = ['export function one() {', '  return 1;', '}'];
  const second = ['/** Two. */', 'export const two = () => 2;'];
  write('kept.ts', "import 'node:fs';", ...first, ...second);
  write('moved.ts', ...first, ...second);
  write('removed.ts', ...first);
  write('001.sql', 'create table a.b (', '  c text', ');', '-- Why.', 'create index d on a.b (c);');
  git('add', '.');
  git('commit', '--quiet', '--message', 'reviewed');
  const reviewed = git('rev-parse', 'HEAD');
  const changes = () =>
    changesSince(reviewed, folder).map(({ file, from, names, text }) => [
      file,
      from,
      names.join(),
      text !== null,
    ]);
  assert.deepEqual(changes(), []);

  write('kept.ts', "import 'node:os';", 'export function one() {', '  return 11;', '}', ...second);
  renameSync(join(folder, 'src/moved.ts'), join(folder, 'src/elsewhere.ts'));
  rmSync(join(folder, 'src/removed.ts'));
  write('001.sql', 'create table a.b (', '  c int4', ');', '-- How.', 'create index d on a.b (c);');
  write('added.ts', ...second);
  git('add', '.');
  assert.deepEqual(changes(), [
    ['src/001.sql', 'src/001.sql', 'a.b,d', true],
    ['src/added.ts', 'src/added.ts', 'two', true],
    ['src/elsewhere.ts', 'src/moved.ts', '', true],
    ['src/kept.ts', 'src/kept.ts', 'the head of the file,one', true],
    ['src/removed.ts', 'src/removed.ts', '', false],
  ]);

  // A comment belongs to the declaration after it, and a removed line to the one around it.
  write(
    'kept.ts',
    "import 'node:fs';",
    'export function one() {',
    '}',
    '/** 2. */',
    second[1] ?? '',
  );
  assert.equal(changes().find(([file]) => file === 'src/kept.ts')?.[2], 'one,two');
});

test('the changes since a commit that git does not know are refused in one line', async () => {
  assert.equal(isCommit('HEAD'), true);
  for (const name of ['nonsense', 'HEAD:README.md', '--stat']) {
    assert.equal(isCommit(name), false, name);
  }
  const audit = run(process.execPath, ['--import', 'tsx', 'scripts/audit.ts', 'nonsense'], {
    cwd: root,
  });
  await assert.rejects(audit, {
    code: 2,
    stdout: '',
    stderr: 'git knows no commit "nonsense" here; see: git log\n',
  });
});

/**
 * The structure of src/ and of the tests: what may import what, and what stands in one place only.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../scripts/packed-forms.ts';
import {
  dynamicImports,
  importsOf,
  linesOf,
  overLimits,
  reachable,
  readTree,
  serviceNames,
  staticImports,
  type Tree,
} from '../../scripts/reading.ts';

const source = readTree();

/**
 * What a layer may import besides itself, types included: a type that is needed from above is in
 * the wrong place.
 */
const PARTS_OF_PLATFORM = ['http', 'crypto', 'db', 'runtime', 'node'];
const SERVICES = ['identity', 'secrets', 'webhook'];
const LAYERS: Readonly<Record<string, readonly string[]>> = {
  runtime: ['node'],
  http: ['runtime', 'node'],
  crypto: ['runtime', 'node'],
  db: ['runtime', 'node', 'postgres'],
  process: PARTS_OF_PLATFORM,
  identity: PARTS_OF_PLATFORM,
  secrets: PARTS_OF_PLATFORM,
  webhook: PARTS_OF_PLATFORM,
  commands: ['top', 'process', ...SERVICES, ...PARTS_OF_PLATFORM],
  top: ['commands', 'process', ...SERVICES, ...PARTS_OF_PLATFORM],
};

/**
 * `src/platform/http/wire/reply.ts` → http, `src/secrets/start.ts` → secrets, `src/cli.ts` → top.
 */
const layerOf = (file: string) => /^src\/(?:platform\/)?([a-z]+)\//.exec(file)?.[1] ?? 'top';

function upwardImports(tree: Tree): string[] {
  const wrong: string[] = [];
  for (const [file, text] of tree) {
    for (const target of importsOf(file, text)) {
      const layer = layerOfImport(target);
      const own = layerOf(file);
      if (layer !== own && !LAYERS[own]?.includes(layer)) wrong.push(`${file} imports ${target}`);
    }
  }
  return wrong;
}

function layerOfImport(target: string): string {
  if (target.startsWith('src/')) return layerOf(target);
  return target.startsWith('node:') ? 'node' : target;
}

function cycles(tree: Tree): string[] {
  const found: string[] = [];
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) {
      found.push([...path.slice(path.indexOf(file)), file].join(' → '));
      return;
    }
    if (done.has(file)) return;
    for (const next of importsOf(file, tree.get(file) ?? '')) {
      if (tree.has(next)) visit(next, [...path, file]);
    }
    done.add(file);
  };
  for (const file of tree.keys()) visit(file, []);
  return found;
}

/** The platform names no service. `identity` in json-body.ts is a content encoding. */
function namesOfServices(tree: Tree): string[] {
  const names = serviceNames(tree).join('|');
  const naming = new RegExp(`'(${names})'|\\b(${names})\\.`);
  const isShared = (file: string) =>
    file.startsWith('src/platform/') && file !== 'src/platform/http/route/json-body.ts';
  return [...tree]
    .filter(([file, text]) => isShared(file) && naming.test(code(text)))
    .map(([file]) => file);
}

/** Where a part of the program begins that may not be needed: all else is loaded at the start. */
const SEAMS =
  /^src\/(main\.ts$|commands\/|platform\/process\/(control|notify)\.ts$|[a-z]+\/(start|settings|migrations|notices)\.ts$|identity\/(signin|factors|oidc)\/|webhook\/(targets\/|inbox)|secrets\/(request-routes|pages\/))/;

function importsOnDemand(tree: Tree): string[] {
  return [...tree].flatMap(([file, text]) =>
    dynamicImports(file, text)
      .filter((target) => !SEAMS.test(target))
      .map((target) => `${file} imports ${target} on demand`),
  );
}

/** @returns the files other than `allowed` whose code matches */
const onlyIn =
  (pattern: RegExp, ...allowed: readonly string[]) =>
  (tree: Tree): string[] =>
    [...tree]
      .filter(([file, text]) => !allowed.includes(file) && pattern.test(code(text)))
      .map(([file]) => file);

const code = (text: string) => text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '');
const sqlFiles = [...source.keys()].filter(
  (file) => file.includes('/store/') || file.startsWith('src/platform/db/'),
);
const strayFilesOfSql = (tree: Tree) =>
  [...tree.keys()].filter(
    (file) => file.endsWith('.sql') && !/^src\/[a-z]+\/migrations\/\d{3}-[a-z-]+\.sql$/.test(file),
  );

/**
 * @param check returns each violation
 * @param file gets the text that violates the rule, which `check` must notice
 */
function holds(
  rule: string,
  check: (tree: Tree) => readonly string[],
  file: string,
  planted: string,
  tree: Tree = source,
): void {
  test(rule, () => {
    assert.deepEqual(check(tree), []);
    const violated = check(new Map(tree).set(file, planted));
    assert.notDeepEqual(violated, [], 'the rule does not notice its planted violation');
  });
}

const HTTP = 'src/platform/http/planted.ts';
const DB = 'src/platform/db/planted.ts';
const HOOKS = 'src/webhook/planted.ts';
const SERVE = 'src/serve.ts';
/** Also of types; of another service, of the process, and of packages. */
const UPWARD: ReadonlyArray<readonly [file: string, planted: string]> = [
  [HTTP, "import { seal } from '../crypto/seal.ts';"],
  ['src/platform/runtime/planted.ts', "import type { Route } from '../http/route.ts';"],
  [HOOKS, "import { may } from '../identity/policy.ts';"],
  [HOOKS, "import { readShared } from '../platform/process/settings.ts';"],
  [HOOKS, "import postgres from 'postgres';"],
  [DB, "import left from 'left-pad';"],
];
test('imports point downward, only db imports postgres, and there is no other package', () => {
  assert.deepEqual(upwardImports(source), []);
  for (const [file, planted] of UPWARD)
    assert.equal(upwardImports(new Map([[file, planted]])).length, 1, planted);
});
holds('imports have no cycles', cycles, HTTP, "import './planted.ts';");
holds('the platform names no service', namesOfServices, HTTP, "const name = 'webhook';");
holds(
  'imports on demand only at the seams',
  importsOnDemand,
  HTTP,
  "const { route } = await import('./route.ts');",
);
holds('files are short', overLimits, HTTP, '\n'.repeat(LIMITS.fileLines + 1));
holds(
  'one createServer',
  onlyIn(/createServer\(/, 'src/platform/http/wire/server.ts'),
  SERVE,
  'createServer()',
);
holds('one reader of the environment', onlyIn(/process\.env/, 'src/main.ts'), SERVE, 'process.env');
holds('one exit', onlyIn(/process\.exit\(/, 'src/main.ts'), SERVE, 'process.exit(1)');
// Durations and expiry use performance.now() or PostgreSQL's clock, which nobody sets back. These
// exchange times with others, write them into the log, or compare the clocks.
holds(
  'the wall clock decides nothing',
  onlyIn(
    /Date\.now\(|new Date\(\)(?!\.toISOString)/,
    'src/platform/db/clock.ts',
    'src/platform/runtime/log.ts',
    'src/webhook/accept.ts',
    'src/webhook/worker.ts',
    'src/webhook/verification.ts',
    'src/webhook/targets/forward.ts',
    'src/commands/events.ts',
  ),
  SERVE,
  'Date.now() - since',
);
holds('SQL only in stores and db', onlyIn(/\bsql(<[^`]*>)?`/, ...sqlFiles), SERVE, 'sql`select 1`');
holds(
  'files of SQL are the steps of a schema',
  strayFilesOfSql,
  'src/identity/store/planted.sql',
  'select 1;',
);
holds(
  'lists of values are one parameter',
  onlyIn(/\bin \$\{sql\(/),
  DB,
  'sql`select 1 where id in ${sql(ids)}`',
);
holds(
  'raw SQL is constant',
  onlyIn(/\.unsafe\(/, 'src/platform/db/client.ts', 'src/platform/db/schema.ts'),
  DB,
  'sql.unsafe(x)',
);
holds(
  'error statuses only in the table',
  onlyIn(/\b(status|statusCode): [45]\d\d\b/, 'src/platform/http/route/errors.ts'),
  SERVE,
  '({ status: 401 })',
);
holds(
  'no way around the type system',
  onlyIn(/: any\b|as any\b|<any>|@ts-|as unknown as|\w!(\.|;|\)|\[)/),
  SERVE,
  'const x = y as any;',
);
holds('nothing is written to the console', onlyIn(/console\./), SERVE, 'console.log(1)');

/** The tests, which run beside compiled files. */
const tests = readTree('test', /\.(?!js$|map$)[a-z]+$/);
const TEST_LINES = 400;
const overLong = (tree: Tree) =>
  [...tree].flatMap(([file, text]) => (linesOf(text) > TEST_LINES ? file : []));
const tooLong = '\n'.repeat(TEST_LINES + 1);
holds('no file of the tests is too long', overLong, 'test/e2e/planted.ts', tooLong, tests);

/** What waits for a time or measures one. A socket's own `setTimeout` is a limit. */
const TIMES =
  /(?<![.\w'])setTimeout\(|\bsetTimeout\b.*\sfrom\s'node:timers|\bpg_sleep\(|\bperformance\.now\(\)/;
const timed = onlyIn(
  TIMES,
  'test/support/until.ts',
  'test/support/clock.ts',
  'test/support/proxy.ts', // a delay is what it makes
  'test/unit/db/take-next.test.ts',
);
// A machine may be as slow as it likes: a test waits for a condition, with `until`.
holds(
  'no test waits for a time or measures one',
  (tree) => timed(tree).filter((file) => !file.startsWith('test/e2e/')),
  'test/unit/planted.test.ts',
  'setTimeout(resolve, 100);',
  tests,
);

test('the webhook service loads only the delivery target in use', () => {
  const isTarget = (file: string) => file.startsWith('src/webhook/targets/');
  const loaded = reachable(source, ['src/webhook/start.ts']);
  const onDemand = [...source].flatMap(([file, text]) => dynamicImports(file, text));
  const targets = [...source.keys()].filter(isTarget).sort();
  assert.deepEqual(loaded.filter(isTarget), []);
  assert.deepEqual([...new Set(onDemand.filter(isTarget))].sort(), targets);
});

test('the settings are read without the database driver, which takes longer to load than all of them', () => {
  const values = new Map(
    [...source].map(([file, text]) => [file, text.replaceAll(/^import type [^;]*;/gm, '')]),
  );
  const settings = [...values.keys()].filter((file) => file.endsWith('/settings.ts'));
  const files = reachable(values, ['src/main.ts', ...settings]);
  assert.ok(
    files.includes('src/platform/http/wire/server.ts') && files.includes('src/platform/db/url.ts'),
  );
  assert.deepEqual(
    files.filter((file) => staticImports(file, values.get(file) ?? '').includes('postgres')),
    [],
  );
});

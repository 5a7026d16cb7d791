/** The structure of src/ and of the tests: what may import what, and what stands in one place only. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
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

/** `src/platform/http/wire/reply.ts` → http, `src/secrets/start.ts` → secrets, `src/cli.ts` → top. */
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

/** Each rule, and how to find what violates it. */
const RULES: Readonly<Record<string, (tree: Tree) => readonly string[]>> = {
  'imports point downward, also of types': upwardImports,
  'imports have no cycles': cycles,
  'the platform names no service': namesOfServices,
  'imports on demand only at the seams': importsOnDemand,
  'files are short': overLimits,
  'one createServer': onlyIn(/createServer\(/, 'src/platform/http/wire/server.ts'),
  'one reader of the environment': onlyIn(/process\.env/, 'src/main.ts'),
  'one exit': onlyIn(/process\.exit\(/, 'src/main.ts'),
  // Durations and expiry use performance.now() or PostgreSQL's clock, which nobody sets back. These
  // exchange times with others, write them into the log, or compare the clocks.
  'the wall clock decides nothing': onlyIn(
    /Date\.now\(|new Date\(\)(?!\.toISOString)/,
    'src/platform/db/clock.ts',
    'src/platform/runtime/log.ts',
    'src/webhook/accept.ts',
    'src/webhook/worker.ts',
    'src/webhook/verification.ts',
    'src/webhook/targets/forward.ts',
    'src/commands/events.ts',
  ),
  'SQL only in stores and db': onlyIn(/\bsql(<[^`]*>)?`/, ...sqlFiles),
  'files of SQL are the steps of a schema': strayFilesOfSql,
  'lists of values are one parameter': onlyIn(/\bin \$\{sql\(/),
  'raw SQL is constant': onlyIn(
    /\.unsafe\(/,
    'src/platform/db/client.ts',
    'src/platform/db/schema.ts',
  ),
  'error statuses only in the table': onlyIn(
    /\b(status|statusCode): [45]\d\d\b/,
    'src/platform/http/route/errors.ts',
  ),
  'no way around the type system': onlyIn(
    /: any\b|as any\b|<any>|@ts-|as unknown as|\w!(\.|;|\)|\[)/,
  ),
  'nothing is written to the console': onlyIn(/console\./),
};

for (const [rule, find] of Object.entries(RULES))
  test(rule, () => assert.deepEqual(find(source), []));

/** The tests, which run beside compiled files. */
const tests = readTree('test', /\.(?!js$|map$)[a-z]+$/);
const TEST_LINES = 400;

test('no file of the tests is too long', () => {
  const long = [...tests].filter(([, text]) => linesOf(text) > TEST_LINES);
  assert.deepEqual(
    long.map(([file]) => file),
    [],
  );
});

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
test('no test waits for a time or measures one', () => {
  assert.deepEqual(
    timed(tests).filter((file) => !file.startsWith('test/e2e/')),
    [],
  );
});

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

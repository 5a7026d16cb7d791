/**
 * The structure of src/ and of the tests: what may import what, what stands in one place only, and
 * how the code is laid out. `make check` compares the parts with their ceilings. Each rule is also
 * given what it must notice.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  findLongFunctions,
  findPackedForms,
  findWideLines,
  LIMITS,
} from '../../scripts/packed-forms.ts';
import {
  densityOf,
  dynamicImports,
  importsOf,
  linesOf,
  MAX_DENSITY,
  overLimits,
  reachable,
  readTree,
  sizesOf,
  staticImports,
  type Tree,
} from '../../scripts/reading.ts';
import { findLateAwait, findNarrowing } from '../../scripts/test-rules.ts';

const source = readTree();
/** The tests, which run beside compiled files. */
const tests = readTree('test', /\.(?!js$|map$)[a-z]+$/);
/** With browser scripts, tests and scripts. */
const allCode: Tree = new Map(
  ['src', 'test', 'scripts'].flatMap((folder) => [
    ...readTree(folder, /\.(ts|mjs)$|\/pages\/[a-z-]+\.js$/),
  ]),
);

/**
 * What a layer may import besides itself, types included: a type that is needed from above is in
 * the wrong place. Of the process and the services, it is what PARTS_OF_PLATFORM has.
 */
const PARTS_OF_PLATFORM = ['http', 'crypto', 'db', 'runtime', 'node'];
const SERVICES = ['identity', 'secrets', 'webhook'];
const LAYERS: Readonly<Record<string, readonly string[]>> = {
  runtime: ['node'],
  http: ['runtime', 'node'],
  crypto: ['runtime', 'node'],
  db: ['runtime', 'node', 'postgres'],
  commands: ['top', 'process', ...SERVICES, ...PARTS_OF_PLATFORM],
  top: ['commands', 'process', ...SERVICES, ...PARTS_OF_PLATFORM],
};

/**
 * `src/platform/http/wire/reply.ts` → http, `src/secrets/start.ts` → secrets, `src/cli.ts` → top,
 * `node:fs` → node, `postgres` → postgres.
 */
function layerOf(target: string): string {
  if (target.startsWith('node:')) return 'node';
  if (!target.startsWith('src/')) return target;
  return /^src\/(?:platform\/)?([a-z]+)\//.exec(target)?.[1] ?? 'top';
}

/** @returns what `find` finds in every file */
const each =
  (find: (file: string, text: string) => readonly string[]) =>
  (tree: Tree): string[] =>
    [...tree].flatMap(([file, text]) => find(file, text));

const upwardImports = each((file, text) => {
  const own = layerOf(file);
  const allowed = [own, ...(LAYERS[own] ?? PARTS_OF_PLATFORM)];
  return importsOf(file, text).filter((target) => !allowed.includes(layerOf(target)));
});

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
const NAMES = SERVICES.join('|');
const naming = new RegExp(`'(${NAMES})'|\\b(${NAMES})\\.`);
const namesOfServices = each((file, text) => {
  const isShared =
    file.startsWith('src/platform/') && file !== 'src/platform/http/route/json-body.ts';
  return isShared && naming.test(code(text)) ? [file] : [];
});

/** Where a part of the program begins that may not be needed: all else is loaded at the start. */
const SEAMS =
  /^src\/(main\.ts$|commands\/|platform\/process\/(control|notify)\.ts$|[a-z]+\/(start|settings|migrations|notices)\.ts$|identity\/(signin|factors|oidc)\/|webhook\/(targets\/|inbox)|secrets\/(request-routes|pages\/))/;

const importsOnDemand = each((file, text) =>
  dynamicImports(file, text).filter((target) => !SEAMS.test(target)),
);

/** @returns the files other than `allowed` whose code matches */
const onlyIn = (pattern: RegExp, ...allowed: readonly string[]) =>
  each((file, text) => (!allowed.includes(file) && pattern.test(code(text)) ? [file] : []));

const code = (text: string) => text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '');
const sqlFiles = [...source.keys()].filter(
  (file) => file.includes('/store/') || file.startsWith('src/platform/db/'),
);
const STEP_OF_SCHEMA = /^src\/[a-z]+\/migrations\/\d{3}-[a-z-]+\.sql$/;

/** They stand before the first test here, since this file obeys the rule, too. */
const LATE = ['await open();', 'for (const one of all) {\n  await one;\n}'];

/**
 * @param check returns each violation
 * @param planted by file, texts that violate the rule, which `check` must notice
 */
function holds(
  rule: string,
  check: (tree: Tree) => readonly string[],
  planted: Readonly<Record<string, string | readonly string[]>>,
  tree: Tree = source,
): void {
  test(rule, () => {
    assert.ok(tree.size > 0);
    assert.deepEqual(check(tree), []);
    for (const [file, texts] of Object.entries(planted))
      for (const text of [texts].flat())
        assert.equal(check(new Map([[file, text]])).length, 1, text);
  });
}

const HTTP = 'src/platform/http/planted.ts';
const DB = 'src/platform/db/planted.ts';
const SERVE = 'src/serve.ts';
holds(
  'imports point downward, only db imports postgres, and there is no other package',
  upwardImports,
  {
    [HTTP]: "import { seal } from '../crypto/seal.ts';",
    'src/platform/runtime/planted.ts': "import type { Route } from '../http/route.ts';",
    'src/webhook/planted.ts': [
      "import { may } from '../identity/policy.ts';",
      "import { readShared } from '../platform/process/settings.ts';",
      "import postgres from 'postgres';",
    ],
    [DB]: "import left from 'left-pad';",
  },
);
holds('imports have no cycles', cycles, { [HTTP]: "import './planted.ts';" });
holds('the platform names no service', namesOfServices, { [HTTP]: "const name = 'webhook';" });
holds('imports on demand only at the seams', importsOnDemand, {
  [HTTP]: "const { route } = await import('./route.ts');",
});
holds('files are short', overLimits, { [HTTP]: '\n'.repeat(LIMITS.fileLines + 1) });
holds('one createServer', onlyIn(/createServer\(/, 'src/platform/http/wire/server.ts'), {
  [SERVE]: 'createServer()',
});
holds('one reader of the environment', onlyIn(/process\.env/, 'src/main.ts'), {
  [SERVE]: 'process.env',
});
holds('one exit', onlyIn(/process\.exit\(/, 'src/main.ts'), { [SERVE]: 'process.exit(1)' });
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
  { [SERVE]: 'Date.now() - since' },
);
holds('SQL only in stores and db', onlyIn(/\bsql(<[^`]*>)?`/, ...sqlFiles), {
  [SERVE]: 'sql`select 1`',
});
holds(
  'files of SQL are the steps of a schema',
  each((file) => (file.endsWith('.sql') && !STEP_OF_SCHEMA.test(file) ? [file] : [])),
  { 'src/identity/store/planted.sql': 'select 1;' },
);
holds('lists of values are one parameter', onlyIn(/\bin \$\{sql\(/), {
  [DB]: 'sql`select 1 where id in ${sql(ids)}`',
});
holds(
  'raw SQL is constant',
  onlyIn(/\.unsafe\(/, 'src/platform/db/client.ts', 'src/platform/db/schema.ts'),
  { [DB]: 'sql.unsafe(x)' },
);
holds(
  'error statuses only in the table',
  onlyIn(/\b(status|statusCode): [45]\d\d\b/, 'src/platform/http/route/errors.ts'),
  { [SERVE]: '({ status: 401 })' },
);
holds(
  'no way around the type system',
  onlyIn(/: any\b|as any\b|<any>|@ts-|as unknown as|\w!(\.|;|\)|\[)/),
  { [SERVE]: 'const x = y as any;' },
);
holds('nothing is written to the console', onlyIn(/console\./), { [SERVE]: 'console.log(1)' });
holds(
  'no form packs decisions',
  each(findPackedForms),
  {
    [SERVE]: [
      'const [a, b] = [1, 2];',
      'let a = 1;\nlet b = 2;\n[a, b] = [b, a];',
      'const { a } = { a: 1 };',
      'const a = b ? 1 : c ? 2 : 3;',
      'const a = b ? f(c ? 1 : 2) : 3;',
      'const a = (b ? c : d) ? 1 : 2;',
      'const a = b ? `${c ? 1 : 2}` : 3;',
      'if ((a = b)) f();',
      'const f = () => (a = 1);',
      'a = b = 1;',
      'f();\na && g();',
      'f();\na || g();',
      'f();\na ? g() : h();',
      'function f() {\n  return void g();\n}',
      'const f = () => void g();',
    ],
  },
  allCode,
);
const LONG = `function f() {\n${'  f();\n'.repeat(LIMITS.functionLines - 1)}}\n`;
holds(
  'no function is too long: SQL does not count, closures do',
  each(findLongFunctions),
  {
    [SERVE]: [
      LONG,
      'const f = () => {\n' + '  const g = () => {\n    h();\n  };\n'.repeat(20) + '};\n',
      `const a = {\n${LONG.replace('function f', 'method')}};\n`,
    ],
  },
  allCode,
);
holds(
  'no line has more than 100 columns, except for one string or address',
  each(findWideLines),
  { [SERVE]: `f(${'a, '.repeat(40)}b);` },
  allCode,
);

const TEST = 'test/unit/planted.test.ts';
const TEST_LINES = 400;
holds(
  'no file of the tests is too long',
  each((file, text) => (linesOf(text) > TEST_LINES ? [file] : [])),
  { [TEST]: '\n'.repeat(TEST_LINES + 1) },
  tests,
);
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
  { [TEST]: 'setTimeout(resolve, 100);' },
  tests,
);
holds(
  'no test is the only one',
  each(findNarrowing),
  { [TEST]: [`test.${'only'}('x')`, `{ ${'only'}: true }`, `context.run${'Only'}(true)`] },
  tests,
);
holds(
  'no file waits between its tests',
  each(findLateAwait),
  { [TEST]: LATE.map((text) => `test('x', f);\n${text}`) },
  tests,
);

/** What keyboards and checkers of spelling do with the fields of the pages. */
const FIELD = /<(?:input|textarea)\b[^>]*>/g;
// The state of a field is filled in: test/api/identity/signin/forms.test.ts.
const FREE = /\breadonly\b|\.state\}\}|type="url"/;
const SECRET_FIELD = /type="password"|id="(secret|passphrase)"/;
holds(
  'a field that is not checked for spelling is not corrected either, and no secret is checked',
  each((_file, text) =>
    [...text.matchAll(FIELD)]
      .map(([tag]) => tag)
      .filter((tag) => !FREE.test(tag))
      .filter((tag) => SECRET_FIELD.test(tag) || tag.includes('spellcheck="false"'))
      .filter((tag) => !tag.includes('autocapitalize="none" autocorrect="off" spellcheck="false"')),
  ),
  {
    'src/secrets/pages/planted.html': [
      '<input type="password" autocomplete="off" />',
      '<textarea autocorrect="on" spellcheck="false"></textarea>',
    ],
  },
  readTree('src', /\/pages\/.*\.html$/),
);

test('no line has too many tokens, and one in a hundred more than 100 columns', () => {
  assert.ok(densityOf(source) <= MAX_DENSITY);
  const lines = [...source.values()].flatMap((text) => text.split('\n'));
  const wide = lines.filter((line) => [...line].length > LIMITS.columns);
  assert.ok(wide.length * 100 <= lines.length, `${wide.length} of ${lines.length} lines`);
});

test('every file belongs to one part', () => {
  for (const file of source.keys()) {
    const parts = [...sizesOf(new Map([[file, 'a;\n']])).values()].filter((tokens) => tokens > 0);
    assert.equal(parts.length, 1, file);
  }
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

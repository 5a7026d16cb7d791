/**
 * The structure of src/: what may import what, what stands in one place only, and how much there is
 * to read.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import {
  aboveCeilings,
  CEILINGS,
  densityOf,
  dynamicImports,
  importsOf,
  MAX_DENSITY,
  overLimits,
  type Part,
  PART_NAMES,
  reachable,
  readTree,
  root,
  serviceNames,
  sizesOf,
  staticImports,
  type Tree,
} from '../../scripts/reading.ts';
import {
  findLongFunctions,
  findPackedForms,
  findWideLines,
  LIMITS,
} from '../../scripts/packed-forms.ts';
import { countTokens } from '../../scripts/tokens.ts';

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

const packedForms = (tree: Tree): string[] =>
  [...tree].flatMap(([file, text]) => findPackedForms(file, text));
const longFunctions = (tree: Tree): string[] =>
  [...tree].flatMap(([file, text]) => findLongFunctions(file, text));
const wideLines = (tree: Tree): string[] =>
  [...tree].flatMap(([file, text]) => findWideLines(file, text));

/** @returns the files other than `allowed` whose code matches */
function elsewhere(tree: Tree, pattern: RegExp, allowed: readonly string[]): string[] {
  return [...tree]
    .filter(([file, text]) => !allowed.includes(file) && pattern.test(code(text)))
    .map(([file]) => file);
}

const code = (text: string) => text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '');

const sqlFiles = [...source.keys()].filter(
  (file) => file.includes('/store/') || file.startsWith('src/platform/db/'),
);

interface Rule {
  readonly rule: string;
  /** @returns each violation */
  readonly check: (tree: Tree) => string[];
  /** A violation that `check` must notice. */
  readonly planted: readonly [file: string, text: string];
}

const RULES: readonly Rule[] = [
  {
    rule: 'imports point downward',
    check: upwardImports,
    planted: ['src/platform/http/planted.ts', "import { seal } from '../crypto/seal.ts';"],
  },
  {
    rule: 'type imports point downward',
    check: upwardImports,
    planted: ['src/platform/runtime/planted.ts', "import type { Route } from '../http/route.ts';"],
  },
  {
    rule: 'services do not import each other',
    check: upwardImports,
    planted: ['src/secrets/planted.ts', "import { may } from '../identity/policy.ts';"],
  },
  {
    rule: 'a service does not import the process',
    check: upwardImports,
    planted: [
      'src/webhook/planted.ts',
      "import { readShared } from '../platform/process/settings.ts';",
    ],
  },
  {
    rule: 'only db imports postgres',
    check: upwardImports,
    planted: ['src/webhook/planted.ts', "import postgres from 'postgres';"],
  },
  {
    rule: 'there is no other package',
    check: upwardImports,
    planted: ['src/platform/db/planted.ts', "import left from 'left-pad';"],
  },
  {
    rule: 'imports have no cycles',
    check: cycles,
    planted: ['src/platform/crypto/planted.ts', "import './planted.ts';"],
  },
  {
    rule: 'the platform names no service',
    check: namesOfServices,
    planted: ['src/platform/runtime/planted.ts', "const name = 'webhook';"],
  },
  {
    rule: 'imports on demand only at the seams',
    check: importsOnDemand,
    planted: ['src/platform/http/planted.ts', "const { route } = await import('./route.ts');"],
  },
  {
    rule: 'files are short, and lines hold little',
    check: overLimits,
    planted: ['src/platform/http/planted.ts', '\n'.repeat(LIMITS.fileLines + 1)],
  },
  {
    rule: 'one createServer',
    check: (tree) => elsewhere(tree, /createServer\(/, ['src/platform/http/wire/server.ts']),
    planted: ['src/serve.ts', 'createServer()'],
  },
  {
    rule: 'one reader of the environment',
    check: (tree) => elsewhere(tree, /process\.env/, ['src/main.ts']),
    planted: ['src/serve.ts', 'process.env.X'],
  },
  {
    rule: 'one exit',
    check: (tree) => elsewhere(tree, /process\.exit\(/, ['src/main.ts']),
    planted: ['src/serve.ts', 'process.exit(1)'],
  },
  // Durations and expiry use performance.now() or PostgreSQL's clock, which nobody sets back. These
  // exchange times with others, write them into the log, or compare the clocks.
  {
    rule: 'the wall clock decides nothing',
    check: (tree) =>
      elsewhere(tree, /Date\.now\(|new Date\(\)(?!\.toISOString)/, [
        'src/platform/db/clock.ts',
        'src/platform/runtime/log.ts',
        'src/webhook/accept.ts',
        'src/webhook/worker.ts',
        'src/webhook/verification.ts',
        'src/webhook/targets/forward.ts',
        'src/commands/events.ts',
      ]),
    planted: ['src/serve.ts', 'Date.now() - since'],
  },
  {
    rule: 'SQL only in stores and db',
    check: (tree) => elsewhere(tree, /\bsql(<[^`]*>)?`/, sqlFiles),
    planted: ['src/identity/login.ts', 'sql`select 1`'],
  },
  {
    rule: 'files of SQL are the steps of a schema',
    check: (tree) =>
      [...tree.keys()].filter(
        (file) =>
          file.endsWith('.sql') && !/^src\/[a-z]+\/migrations\/\d{3}-[a-z-]+\.sql$/.test(file),
      ),
    planted: ['src/identity/store/planted.sql', 'select 1;'],
  },
  {
    rule: 'lists of values are one parameter',
    check: (tree) => elsewhere(tree, /\bin \$\{sql\(/, []),
    planted: ['src/platform/db/planted.ts', 'sql`select 1 where id in ${sql(ids)}`'],
  },
  {
    rule: 'raw SQL is constant',
    check: (tree) =>
      elsewhere(tree, /\.unsafe\(/, ['src/platform/db/client.ts', 'src/platform/db/schema.ts']),
    planted: ['src/identity/store/users.ts', 'sql.unsafe(x)'],
  },
  {
    rule: 'error statuses only in the table',
    check: (tree) =>
      elsewhere(tree, /\b(status|statusCode): [45]\d\d\b/, ['src/platform/http/route/errors.ts']),
    planted: ['src/identity/login.ts', '({ status: 401 })'],
  },
  {
    rule: 'no way around the type system',
    check: (tree) =>
      elsewhere(tree, /: any\b|as any\b|<any>|@ts-|as unknown as|\w!(\.|;|\)|\[)/, []),
    planted: ['src/serve.ts', 'const x = y as any;'],
  },
  {
    rule: 'nothing is written to the console',
    check: (tree) => elsewhere(tree, /console\./, []),
    planted: ['src/serve.ts', 'console.log(1)'],
  },
];

function holds({ rule, check, planted }: Rule, tree: Tree): void {
  test(rule, () => {
    assert.deepEqual(check(tree), []);
    const violated = check(new Map(tree).set(...planted));
    assert.notDeepEqual(violated, [], 'the rule does not notice its planted violation');
  });
}

for (const rule of RULES) holds(rule, source);

/** With browser scripts, tests and scripts. The tests run beside compiled files, which are left out. */
const allCode: Tree = new Map(
  ['src', 'test', 'scripts'].flatMap((folder) => [
    ...readTree(folder, /\.(ts|mjs)$|\/pages\/[a-z-]+\.js$/),
  ]),
);

/** What waits for a time or measures one. A socket's own `setTimeout` is a limit. */
const TIMES =
  /(?<![.\w'])setTimeout\(|\bsetTimeout\b.*\sfrom\s'node:timers|\bpg_sleep\(|\bperformance\.now\(\)/;

// A machine may be as slow as it likes: a test waits for a condition, with `until`.
holds(
  {
    rule: 'no test waits for a time or measures one',
    check: (tree) =>
      elsewhere(tree, TIMES, [
        'test/support/until.ts',
        'test/support/clock.ts',
        'test/support/proxy.ts', // a delay is what it makes
        'test/unit/db/take-next.test.ts',
      ]).filter((file) => file.startsWith('test/') && !file.startsWith('test/e2e/')),
    planted: ['test/unit/planted.test.ts', 'setTimeout(resolve, 100);'],
  },
  allCode,
);

const FORMS: ReadonlyArray<readonly [form: string, text: string]> = [
  ['an array literal', 'const [a, b] = [1, 2];'],
  ['an array literal in an assignment', 'let a = 1;\nlet b = 2;\n[a, b] = [b, a];'],
  ['an object literal', 'const { a } = { a: 1 };'],
  ['a conditional in a branch', 'const a = b ? 1 : c ? 2 : 3;'],
  ['a conditional in an argument', 'const a = b ? f(c ? 1 : 2) : 3;'],
  ['a conditional in a condition', 'const a = (b ? c : d) ? 1 : 2;'],
  ['a conditional in a template', 'const a = b ? `${c ? 1 : 2}` : 3;'],
  ['an assignment in a condition', 'if ((a = b)) f();'],
  ['an assignment as a result', 'const f = () => (a = 1);'],
  ['a chain of assignments', 'a = b = 1;'],
  ['a decision by &&', 'f();\na && g();'],
  ['a decision by ||', 'f();\na || g();'],
  ['a decision by a conditional', 'f();\na ? g() : h();'],
  ['void in a return', 'function f() {\n  return void g();\n}'],
  ['void as a result', 'const f = () => void g();'],
];

test('no form that packs decisions', () => assert.deepEqual(packedForms(allCode), []));

for (const [form, text] of FORMS) {
  test(`packed forms: ${form} is noticed`, () => {
    assert.equal(findPackedForms('planted.ts', `start();\n${text}\n`).length, 1);
  });
}

const PLAIN = [
  'const [a, b] = f();',
  'const [a = 1, b = 2] = f();',
  'const a = b ? list.map((one) => one) : [];',
  'const f = (a = 1, b: C = 2): D => a + b;',
  'for (let a = 0; a < b && c; a += 1) f();',
  'function f(a?: B, c = 1): void {\n  if (a) void g();\n  else void h();\n}',
  'const a = b ? 1 : 2;\nconst c = d ? 3 : 4;',
  'const f = () => {\n  a = 1;\n};',
  'type A<B = C> = () => void;',
];

for (const text of PLAIN) {
  test(`packed forms: this is none: ${text.split('\n')[0]}`, () => {
    assert.deepEqual(findPackedForms('planted.ts', `${text}\n`), []);
  });
}

const longFunction = (lines: number) => `function f() {\n${'  f();\n'.repeat(lines - 2)}}\n`;

test('no function of more than 60 lines', () => assert.deepEqual(longFunctions(allCode), []));

test('long functions: one line more is noticed, SQL does not count, closures do', () => {
  const lengths = (text: string) => findLongFunctions('planted.ts', text).length;
  assert.equal(lengths(longFunction(LIMITS.functionLines)), 0);
  assert.equal(lengths(longFunction(LIMITS.functionLines + 1)), 1);
  const sql =
    `const f = () => {\n  g(sql` + "`\n${'    select 1,\n'.repeat(60)}    2`" + `);\n};\n`;
  assert.equal(lengths(sql), 0);
  const closure = `const f = () => {\n${'  const g = () => {\n    h();\n  };\n'.repeat(20)}};\n`;
  assert.equal(lengths(closure), 1);
  const method = longFunction(LIMITS.functionLines + 1).replace('function f', 'method');
  assert.equal(lengths(`const a = {\n${method}};\n`), 1);
});

test('no line of more than 100 columns, except for one string or address', () => {
  assert.deepEqual(wideLines(allCode), []);
  assert.equal(findWideLines('planted.ts', `f(${'a, '.repeat(40)}b);`).length, 1);
  assert.equal(findWideLines('planted.ts', `f('${'a'.repeat(120)}');`).length, 0);
});

test('at most 1 % of the lines have more than 100 columns', () => {
  const lines = [...source.values()].flatMap((text) => text.split('\n'));
  const wide = lines.filter((line) => [...line].length > LIMITS.columns);
  assert.ok(wide.length * 100 <= lines.length, `${wide.length} of ${lines.length} lines`);
});

/** A file of each part. */
const FILES: Readonly<Record<Part, string>> = {
  platform: 'src/cli.ts',
  secrets: 'src/secrets/start.ts',
  identity: 'src/identity/start.ts',
  webhook: 'src/webhook/start.ts',
  signin: 'src/identity/signin/routes.ts',
  oidc: 'src/identity/oidc/routes.ts',
  commands: 'src/commands/command.ts',
};

for (const part of PART_NAMES) {
  test(`one token above the ceiling of ${part} is noticed`, () => {
    const file = FILES[part];
    const others = [...source].filter(
      ([name]) => sizesOf(new Map([[name, 'a;\n']])).get(part) === 0,
    );
    const above = (tokens: number) => {
      const tree = new Map(others).set(file, ';\n'.repeat(tokens));
      return aboveCeilings(tree).filter((sentence) => sentence.startsWith(`${part} `));
    };
    assert.deepEqual(above(CEILINGS[part]), []);
    assert.equal(above(CEILINGS[part] + 1).length, 1);
  });
}

test('every file belongs to one part', () => {
  for (const file of source.keys()) {
    const parts = [...sizesOf(new Map([[file, 'a;\n']])).values()].filter((tokens) => tokens > 0);
    assert.equal(parts.length, 1, file);
  }
});

test('a line of code with too many tokens is noticed', () => {
  const planted = new Map(source).set('src/planted.ts', `${'a '.repeat(20_000)}\n`);
  assert.ok(densityOf(source) <= MAX_DENSITY);
  assert.ok(densityOf(planted) > MAX_DENSITY);
});

const SQL = "sql`select a, 'b c' -- why\n from d where e = ${f(1)}`";
const COUNTED: ReadonlyArray<readonly [text: string, tokens: number]> = [
  ['const a = b;', 5],
  ['// a comment\n/** and another */ a', 1],
  ["'a string of words'", 1],
  ['a => b ?? c', 5],
  ['f(\n  a,\n  b,\n)', 6],
  ['a?.b !== 1.5', 5],
  ['/a[/]b/g.test(c)', 6],
  ['a / b / c', 5],
  ['`a ${b} c`', 2],
  ['`a ${`b ${c}`} d`', 3],
  [SQL, 14],
  ["'create table a (b text)'", 7],
];

for (const [text, tokens] of COUNTED) {
  test(`tokens of ${text.replaceAll('\n', ' ')}`, () => assert.equal(countTokens(text), tokens));
}

test('tokens: how a file is laid out or loaded makes no difference', () => {
  const tree = new Map([
    ['src/webhook/migrations/001-a.sql', "-- why\ncreate table a (\n  b text -- 'c\n);\n"],
    ['src/cli.ts', "const b = import('./b.ts');\n"],
    ['src/b.ts', 'export const b = [\n  1,\n  2,\n];\n'],
    ['src/secrets/start.ts', "import type { A } from './a.ts';\n"],
    ['src/secrets/a.ts', 'export type A = 1;\n'],
    ['src/secrets/late.ts', 'a;\n'],
  ]);
  assert.equal(sizesOf(tree).get('secrets'), 8 + 6 + 2);
  assert.equal(sizesOf(tree).get('platform'), 8 + 10);
  assert.equal(sizesOf(tree).get('webhook'), 8);
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

test('a production install is one package, and that package needs no other', () => {
  const manifest: { dependencies: object } = JSON.parse(
    readFileSync(join(root, 'package.json'), 'utf8'),
  );
  assert.deepEqual(Object.keys(manifest.dependencies), ['postgres']);
  const lock: {
    packages: Record<
      string,
      {
        dependencies?: object;
        dev?: boolean;
        optional?: boolean;
        link?: boolean;
        resolved?: string;
      }
    >;
  } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  const installed = Object.entries(lock.packages).filter(
    ([name, one]) => name !== '' && !one.dev && !one.optional && !one.link,
  );
  assert.deepEqual(
    installed.map(([name]) => name),
    ['node_modules/postgres'],
  );
  assert.equal(lock.packages['node_modules/postgres']?.dependencies, undefined);
  assert.deepEqual(
    Object.values(lock.packages).filter((one) => one.resolved !== undefined && !one.link),
    [],
    'the lock file names no download address',
  );
});

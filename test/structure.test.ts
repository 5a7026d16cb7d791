/** The structure of src/: what may import what, what stands in one place only, and how much there is to read. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import {
  BUDGET,
  dynamicImports,
  linesOf,
  onDemand,
  overBudget,
  reachable,
  readingLists,
  readingSizes,
  readTree,
  root,
  staticImports,
  type Tree,
} from '../scripts/reading.ts';

const source = readTree();

/** What a layer may import besides itself, types included: a type that is needed from above is in the wrong place. */
const LAYERS: Readonly<Record<string, readonly string[]>> = {
  runtime: ['node'],
  http: ['runtime', 'node'],
  crypto: ['runtime', 'node'],
  db: ['runtime', 'node', 'postgres'],
  identity: ['http', 'crypto', 'db', 'runtime', 'node'],
  secrets: ['http', 'crypto', 'db', 'runtime', 'node'],
  webhook: ['http', 'crypto', 'db', 'runtime', 'node'],
  commands: ['top', 'identity', 'secrets', 'webhook', 'http', 'crypto', 'db', 'runtime', 'node'],
  top: ['commands', 'identity', 'secrets', 'webhook', 'http', 'crypto', 'db', 'runtime', 'node'],
};

const layerOf = (file: string) => (file.split('/').length > 2 ? (file.split('/')[1] ?? '') : 'top');
const importsOf = (file: string, text: string) => [
  ...staticImports(file, text),
  ...dynamicImports(file, text),
];

function upwardImports(tree: Tree): string[] {
  const wrong: string[] = [];
  for (const [file, text] of tree) {
    for (const target of importsOf(file, text)) {
      const layer = target.startsWith('src/')
        ? layerOf(target)
        : target.startsWith('node:')
          ? 'node'
          : target;
      const own = layerOf(file);
      if (layer !== own && !LAYERS[own]?.includes(layer)) wrong.push(`${file} imports ${target}`);
    }
  }
  return wrong;
}

function cycles(tree: Tree): string[] {
  const found: string[] = [];
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): void => {
    if (path.includes(file))
      return void found.push([...path.slice(path.indexOf(file)), file].join(' → '));
    if (done.has(file)) return;
    for (const next of importsOf(file, tree.get(file) ?? ''))
      if (tree.has(next)) visit(next, [...path, file]);
    done.add(file);
  };
  for (const file of tree.keys()) visit(file, []);
  return found;
}

/** The layers below `serve.ts` and `main.ts` name no service. `identity` in body.ts is a content encoding. */
function serviceNames(tree: Tree): string[] {
  const names = [...readingLists(tree).services.keys()].join('|');
  const shared = [...tree].filter(
    ([file]) =>
      /^src\/(http|crypto|db|runtime)\/|^src\/settings\.ts$/.test(file) &&
      file !== 'src/http/body.ts',
  );
  return shared
    .filter(([, text]) => new RegExp(`'(${names})'|\\b(${names})\\.`).test(code(text)))
    .map(([file]) => file);
}

/** @returns the files other than `allowed` whose code matches */
function elsewhere(tree: Tree, pattern: RegExp, allowed: readonly string[]): string[] {
  return [...tree]
    .filter(([file, text]) => !allowed.includes(file) && pattern.test(code(text)))
    .map(([file]) => file);
}

const code = (text: string) => text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '');

const sqlFiles = [...source.keys()].filter(
  (file) => file.endsWith('/store.ts') || file.includes('/store/') || file.startsWith('src/db/'),
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
    planted: ['src/http/planted.ts', "import { seal } from '../crypto/box.ts';"],
  },
  {
    rule: 'type imports point downward',
    check: upwardImports,
    planted: ['src/runtime/planted.ts', "import type { Route } from '../http/call.ts';"],
  },
  {
    rule: 'services do not import each other',
    check: upwardImports,
    planted: ['src/secrets/planted.ts', "import { may } from '../identity/policy.ts';"],
  },
  {
    rule: 'a service does not import the process',
    check: upwardImports,
    planted: ['src/webhook/planted.ts', "import type { Service } from '../serve.ts';"],
  },
  {
    rule: 'only db imports postgres',
    check: upwardImports,
    planted: ['src/webhook/planted.ts', "import postgres from 'postgres';"],
  },
  {
    rule: 'there is no other package',
    check: upwardImports,
    planted: ['src/db/planted.ts', "import left from 'left-pad';"],
  },
  {
    rule: 'imports have no cycles',
    check: cycles,
    planted: [
      'src/crypto/text.ts',
      "import { digest } from './token.ts';\nimport '../crypto/box.ts';",
    ],
  },
  {
    rule: 'the shared layers name no service',
    check: serviceNames,
    planted: ['src/runtime/planted.ts', "const name = 'webhook';"],
  },
  {
    rule: 'the reading budget is kept',
    check: overBudget,
    planted: ['src/http/planted.ts', '\n'.repeat(BUDGET.file + 1)],
  },
  {
    rule: 'one createServer',
    check: (tree) => elsewhere(tree, /createServer\(/, ['src/http/server.ts']),
    planted: ['src/serve.ts', 'createServer()'],
  },
  {
    rule: 'one reader of the environment',
    check: (tree) => elsewhere(tree, /process\.env/, ['src/settings.ts']),
    planted: ['src/serve.ts', 'process.env.X'],
  },
  {
    rule: 'one exit',
    check: (tree) => elsewhere(tree, /process\.exit\(/, ['src/main.ts']),
    planted: ['src/serve.ts', 'process.exit(1)'],
  },
  // Durations and expiry use performance.now() or PostgreSQL's clock, which nobody sets back. These three exchange times with others.
  {
    rule: 'the wall clock decides nothing',
    check: (tree) =>
      elsewhere(tree, /Date\.now\(|new Date\(\)(?!\.toISOString)/, [
        'src/webhook/receive.ts',
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
    rule: 'lists of values are one parameter',
    check: (tree) => elsewhere(tree, /\bin \$\{sql\(/, []),
    planted: ['src/db/planted.ts', 'sql`select 1 where id in ${sql(ids)}`'],
  },
  {
    rule: 'raw SQL is constant',
    check: (tree) => elsewhere(tree, /\.unsafe\(/, ['src/db/migrate.ts']),
    planted: ['src/identity/store.ts', 'sql.unsafe(x)'],
  },
  {
    rule: 'error statuses only in the table',
    check: (tree) => elsewhere(tree, /\b(status|statusCode): [45]\d\d\b/, ['src/http/errors.ts']),
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

for (const { rule, check, planted } of RULES) {
  test(rule, () => {
    assert.deepEqual(check(source), []);
    assert.notDeepEqual(
      check(new Map(source).set(...planted)),
      [],
      'the rule does not notice its planted violation',
    );
  });
}

for (const scope of ['core', 'secrets', 'identity', 'webhook', 'signin', 'all'] as const) {
  test(`one line over the budget of ${scope} is noticed`, () => {
    const [name, ...others] = scope === 'core' ? ['core'] : scope === 'all' ? ['all'] : [scope];
    assert.deepEqual(others, []);
    const file =
      scope === 'core'
        ? 'src/cli.ts'
        : scope === 'all'
          ? 'src/planted.ts'
          : scope === 'signin'
            ? 'src/identity/signin/planted.ts'
            : `src/${scope}/start.ts`;
    const room = BUDGET[scope] - (readingSizes(source)[scope] ?? 0);
    const padded = (lines: number) =>
      overBudget(new Map(source).set(file, '\n'.repeat(lines) + (source.get(file) ?? '')));
    assert.ok(room >= 0, `${scope} is over its budget by ${-room}`);
    assert.deepEqual(
      padded(room).filter((problem) => problem.startsWith(`${name}:`)),
      [],
    );
    assert.equal(padded(room + 1).filter((problem) => problem.startsWith(`${name}:`)).length, 1);
  });
}

test('type imports count as reading, and imports on demand do not', () => {
  const tree = new Map([
    ['src/cli.ts', "import type { A } from './a.ts';\nconst b = import('./b.ts');\n"],
    ['src/a.ts', "export type { A } from './c.ts';\n"],
    ['src/b.ts', 'export const b = 1;\n'],
    ['src/c.ts', 'export type A = 1;\n'],
    ['src/one/start.ts', ''],
    ['src/two/start.ts', ''],
  ]);
  assert.deepEqual(readingLists(tree).core, ['src/cli.ts', 'src/a.ts', 'src/c.ts']);
  assert.deepEqual(onDemand(tree, ['src/cli.ts']), ['src/b.ts']);
  assert.equal(linesOf(tree.get('src/cli.ts')), 2);
});

test('the webhook service loads only the delivery target in use', () => {
  const files = readingLists(source).services.get('webhook') ?? [];
  const targets = (list: readonly string[]) =>
    list.filter((file) => file.startsWith('src/webhook/targets/')).sort();
  assert.deepEqual(targets(files), []);
  assert.deepEqual(targets(onDemand(source, files)), targets([...source.keys()]));
});

test('the settings are read without the database driver, which takes longer to load than all of them', () => {
  const values = new Map(
    [...source].map(([file, text]) => [file, text.replaceAll(/^import type [^;]*;/gm, '')]),
  );
  const settings = [...values.keys()].filter((file) => file.endsWith('/settings.ts'));
  const files = reachable(values, ['src/main.ts', 'src/db/url.ts', ...settings]);
  assert.ok(files.includes('src/http/server.ts') && files.includes('src/db/address.ts'));
  assert.deepEqual(
    files.filter((file) => staticImports(file, values.get(file) ?? '').includes('postgres')),
    [],
  );
});

const run = promisify(execFile);

for (const [service] of readingLists(source).services) {
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
      const lines = (source.get(file) ?? '').split('\n');
      const kept = lines.filter((line) => !line.startsWith(`  ${service}: `));
      assert.equal(lines.length - kept.length, 1, `${file} has one line for ${service}`);
      writeFileSync(join(copy, file), kept.join('\n'));
    }
    await run(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', copy]).catch(
      (error: { stdout?: string }) => assert.fail(error.stdout),
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

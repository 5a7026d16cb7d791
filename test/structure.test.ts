/** The rules by which the house stays readable. Each is shown to fire on a planted fault. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { test } from 'node:test';

type Tree = ReadonlyMap<string, string>;

const root = dirname(import.meta.dirname);

function readTree(folder: string): Map<string, string> {
  const names = readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));
  return new Map(names.map((name) => [join(folder, name), readFileSync(join(root, folder, name), 'utf8')]));
}

const source = readTree('src');

/** What a layer may import besides itself. `types` are allowed where only the shape of a value is needed. */
const LAYERS: Readonly<Record<string, readonly string[]>> = {
  runtime: ['node'],
  http: ['runtime', 'node'],
  crypto: ['runtime', 'node'],
  db: ['runtime', 'node', 'postgres'],
  identity: ['http', 'crypto', 'db', 'runtime', 'node'],
  secrets: ['http', 'crypto', 'db', 'runtime', 'node'],
  webhook: ['http', 'crypto', 'db', 'runtime', 'node'],
  commands: ['top', 'identity', 'secrets', 'webhook', 'http', 'crypto', 'db', 'runtime', 'node'],
  top: ['top', 'commands', 'identity', 'secrets', 'webhook', 'http', 'crypto', 'db', 'runtime', 'node'],
};

const layerOf = (file: string) => (file.split('/').length > 2 ? (file.split('/')[1] ?? '') : 'top');

/** Static and dynamic imports, types included: a type that is needed from above is a sign of a wrong place, too. */
function importsOf(file: string, text: string): string[] {
  const found = text.matchAll(/(?:from|import)\s*\(?\s*'([^']+)'/g);
  return [...found].map(([, name = '']) => (name.startsWith('.') ? normalize(join(dirname(file), name)) : name));
}

function wrongArrows(tree: Tree): string[] {
  const wrong: string[] = [];
  for (const [file, text] of tree) {
    for (const target of importsOf(file, text)) {
      const layer = target.startsWith('src/') ? layerOf(target) : target.startsWith('node:') ? 'node' : target;
      const mine = layerOf(file);
      if (layer !== mine && !LAYERS[mine]?.includes(layer)) wrong.push(`${file} imports ${target}`);
    }
  }
  return wrong;
}

function cycles(tree: Tree): string[] {
  const found: string[] = [];
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) return void found.push([...path.slice(path.indexOf(file)), file].join(' → '));
    if (done.has(file)) return;
    for (const next of importsOf(file, tree.get(file) ?? '')) if (tree.has(next)) visit(next, [...path, file]);
    done.add(file);
  };
  for (const file of tree.keys()) visit(file, []);
  return found;
}

const longFiles = (tree: Tree) => [...tree].filter(([, text]) => text.split('\n').length > 301).map(([file]) => file);

/** A word that may stand in certain files only, comments and strings left out of the count where they are prose. */
function strays(tree: Tree, pattern: RegExp, homes: readonly string[]): string[] {
  return [...tree].filter(([file, text]) => !homes.includes(file) && pattern.test(code(text))).map(([file]) => file);
}

const code = (text: string) => text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '');

const RULES: ReadonlyArray<{ rule: string; check: (tree: Tree) => string[]; fault: [file: string, text: string] }> = [
  { rule: 'imports point downwards only', check: wrongArrows, fault: ['src/http/planted.ts', "import { seal } from '../crypto/box.ts';"] },
  { rule: 'services do not know each other', check: wrongArrows, fault: ['src/secrets/planted.ts', "import { may } from '../identity/policy.ts';"] },
  { rule: 'the only package is postgres, and only db imports it', check: wrongArrows, fault: ['src/webhook/planted.ts', "import postgres from 'postgres';"] },
  { rule: 'imports have no cycles', check: cycles, fault: ['src/crypto/text.ts', "import { digest } from './token.ts';\nimport '../crypto/box.ts';"] },
  { rule: 'no file has more than 300 lines', check: longFiles, fault: ['src/http/planted.ts', '\n'.repeat(301)] },
  { rule: 'one createServer', check: (tree) => strays(tree, /createServer\(/, ['src/http/server.ts']), fault: ['src/serve.ts', 'createServer()'] },
  { rule: 'one reader of the environment', check: (tree) => strays(tree, /process\.env/, ['src/settings.ts']), fault: ['src/serve.ts', 'process.env.X'] },
  { rule: 'one exit', check: (tree) => strays(tree, /process\.exit/, ['src/cli.ts']), fault: ['src/serve.ts', 'process.exit(1)'] },
  { rule: 'SQL only in stores and db', check: (tree) => strays(tree, /\bsql(<[^`]*>)?`/, sqlHomes), fault: ['src/identity/login.ts', 'sql`select 1`'] },
  { rule: 'no raw SQL but constants', check: (tree) => strays(tree, /\.unsafe\(/, ['src/db/migrate.ts']), fault: ['src/identity/store.ts', 'sql.unsafe(x)'] },
  { rule: 'error statuses only in the table', check: (tree) => strays(tree, /\b(status|statusCode): [45]\d\d\b/, ['src/http/errors.ts']), fault: ['src/identity/login.ts', '({ status: 401 })'] },
  { rule: 'no way around the type system', check: (tree) => strays(tree, /: any\b|as any\b|<any>|@ts-|as unknown as|\w!(\.|;|\)|\[)/, []), fault: ['src/serve.ts', 'const x = y as any;'] },
  { rule: 'nothing is written to the console', check: (tree) => strays(tree, /console\./, []), fault: ['src/serve.ts', 'console.log(1)'] },
];

const sqlHomes = [...source.keys()].filter((file) => file.endsWith('/store.ts') || file.includes('/store/') || file.startsWith('src/db/'));

for (const { rule, check, fault } of RULES) {
  test(rule, () => {
    assert.deepEqual(check(source), []);
    const planted = new Map(source).set(...fault);
    assert.notDeepEqual(check(planted), [], 'the rule does not notice its planted fault');
  });
}

test('a production install is one package, and that package needs no other', () => {
  const manifest: { dependencies: object } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  assert.deepEqual(Object.keys(manifest.dependencies), ['postgres']);
  const lock: { packages: Record<string, { dependencies?: object; dev?: boolean; optional?: boolean; resolved?: string }> } = JSON.parse(
    readFileSync(join(root, 'package-lock.json'), 'utf8'),
  );
  const installed = Object.entries(lock.packages).filter(([name, one]) => name !== '' && !one.dev && !one.optional);
  assert.deepEqual(installed.map(([name]) => name), ['node_modules/postgres']);
  assert.equal(lock.packages['node_modules/postgres']?.dependencies, undefined);
  assert.deepEqual(Object.values(lock.packages).filter((one) => one.resolved !== undefined), [], 'the lock file names no download address');
});

/** What a reviewer of one service reads, and the budget for it. Used by `make audit` and by test/structure.test.ts. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';

/** Source texts by path, such as `src/http/server.ts`. */
export type Tree = ReadonlyMap<string, string>;

export const root = dirname(import.meta.dirname);

export function readTree(folder = 'src'): Tree {
  const names = readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.ts'),
  );
  return new Map(
    names
      .sort()
      .map((name) => [join(folder, name), readFileSync(join(root, folder, name), 'utf8')]),
  );
}

const resolved = (file: string, name: string) =>
  name.startsWith('.') ? normalize(join(dirname(file), name)) : name;

/** Imports that are loaded with the file, and type imports: both are read with it. */
export function staticImports(file: string, text: string): string[] {
  return [...text.matchAll(/^(?:import|export)\s+(?:[^;'"]*?\sfrom\s+)?'([^']+)';/gm)].map(
    ([, name = '']) => resolved(file, name),
  );
}

/** Imports on demand. */
export function dynamicImports(file: string, text: string): string[] {
  return [...text.matchAll(/\bimport\(\s*'([^']+)'\s*\)/g)].map(([, name = '']) =>
    resolved(file, name),
  );
}

/** Every file that is read from these entries on, each level before the next. Modules loaded on demand are not included. */
export function reachable(tree: Tree, entries: readonly string[]): string[] {
  const found = new Set(entries.filter((entry) => tree.has(entry)));
  for (const file of found) {
    for (const next of staticImports(file, tree.get(file) ?? ''))
      if (tree.has(next)) found.add(next);
  }
  return [...found];
}

/** Modules that these files load on demand, with what else is then read, and what those load on demand in turn. */
export function onDemand(tree: Tree, files: readonly string[]): string[] {
  const found = new Set(files);
  for (const file of found) {
    for (const next of reachable(tree, dynamicImports(file, tree.get(file) ?? ''))) found.add(next);
  }
  return [...found].slice(files.length);
}

export const linesOf = (text: string | undefined): number =>
  text === undefined ? 0 : text.split('\n').length - 1;

const sum = (tree: Tree, files: readonly string[]) =>
  files.reduce((total, file) => total + linesOf(tree.get(file)), 0);

export interface Reading {
  /** Files that every service needs, in reading order. */
  readonly core: readonly string[];
  /** Further files of each service, its routes first. */
  readonly services: ReadonlyMap<string, readonly string[]>;
}

export function readingLists(tree: Tree): Reading {
  const names = [...tree.keys()].flatMap(
    (file) => /^src\/([a-z]+)\/start\.ts$/.exec(file)?.[1] ?? [],
  );
  const entries = (name: string) =>
    ['routes', 'start', 'settings'].map((file) => `src/${name}/${file}.ts`);
  const lists = new Map(
    names.map((name) => [name, reachable(tree, ['src/cli.ts', 'src/main.ts', ...entries(name)])]),
  );
  const core = reachable(tree, ['src/cli.ts', 'src/main.ts', ...tree.keys()]).filter((file) =>
    [...lists.values()].every((list) => list.includes(file)),
  );
  const inOrder = reachable(tree, ['src/cli.ts', 'src/main.ts']);
  const order = (file: string) => (inOrder.includes(file) ? inOrder.indexOf(file) : inOrder.length);
  return {
    core: core.sort((one, other) => order(one) - order(other)),
    services: new Map(
      names.map((name) => [
        name,
        reachable(tree, entries(name)).filter((file) => !core.includes(file)),
      ]),
    ),
  };
}

/** The sign-in pages and second factors, which SIGNIN_PAGES loads, with the forms that they alone need. */
const SIGNIN = /^src\/(identity\/(signin|factors)\/|http\/form\.ts$)/;

/** Lines, comments included, at most 120 columns wide. */
export const BUDGET = {
  core: 3_100,
  secrets: 4_100,
  identity: 5_100,
  webhook: 5_100,
  signin: 1_600,
  all: 13_289,
  file: 300,
  columns: 120,
} as const;

/** How much there is to read: the core, each service with the core, and everything. */
export function readingSizes(tree: Tree): Readonly<Record<string, number>> {
  const { core, services } = readingLists(tree);
  const shared = sum(tree, core);
  return {
    core: shared,
    ...Object.fromEntries([...services].map(([name, files]) => [name, shared + sum(tree, files)])),
    signin: sum(
      tree,
      [...tree.keys()].filter((file) => SIGNIN.test(file)),
    ),
    all: sum(tree, [...tree.keys()]),
  };
}

/** @returns what exceeds the budget, one sentence each */
export function overBudget(tree: Tree): string[] {
  const sizes = readingSizes(tree);
  const scopes = (['core', 'secrets', 'identity', 'webhook', 'signin', 'all'] as const).flatMap(
    (scope) =>
      (sizes[scope] ?? 0) > BUDGET[scope]
        ? [`${scope}: ${sizes[scope]} lines, at most ${BUDGET[scope]}`]
        : [],
  );
  const files = [...tree].flatMap(([file, text]) => {
    const wide = text.split('\n').findIndex((line) => [...line].length > BUDGET.columns);
    return [
      ...(linesOf(text) > BUDGET.file
        ? [`${file}: ${linesOf(text)} lines, at most ${BUDGET.file}`]
        : []),
      ...(wide < 0 ? [] : [`${file}:${wide + 1}: more than ${BUDGET.columns} columns`]),
    ];
  });
  return [...scopes, ...files];
}

/**
 * What a reviewer of one service reads, and the budget for it. Used by `make audit` and by
 * test/repository/structure.test.ts.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { LIMITS } from './packed-forms.ts';
import { countTokens } from './tokens.ts';

/** Source texts by path, such as `src/http/server.ts`. */
export type Tree = ReadonlyMap<string, string>;

export const root = dirname(import.meta.dirname);

/** @param ending how the names of the wanted files end */
export function readTree(folder = 'src', ending = /\.ts$/): Tree {
  const names = readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' });
  const wanted = names.filter((name) => ending.test(name)).sort();
  return new Map(
    wanted.map((name) => [join(folder, name), readFileSync(join(root, folder, name), 'utf8')]),
  );
}

const resolved = (file: string, name: string) =>
  name.startsWith('.') ? normalize(join(dirname(file), name)) : name;

/** Imports that are loaded with the file, and type imports. */
export function staticImports(file: string, text: string): string[] {
  const found = text.matchAll(/^(?:import|export)\s+(?:[^;'"]*?\sfrom\s+)?'([^']+)';/gm);
  return [...found].map(([, name = '']) => resolved(file, name));
}

/** Imports on demand. */
export function dynamicImports(file: string, text: string): string[] {
  const found = text.matchAll(/\bimport\(\s*'([^']+)'\s*\)/g);
  return [...found].map(([, name = '']) => resolved(file, name));
}

export const importsOf = (file: string, text: string): string[] => [
  ...staticImports(file, text),
  ...dynamicImports(file, text),
];

/**
 * Every file that is read from these entries on, each level before the next.
 * @param imports which imports to follow
 */
export function reachable(
  tree: Tree,
  entries: readonly string[],
  imports = staticImports,
): readonly string[] {
  const found = new Set(entries.filter((entry) => tree.has(entry)));
  for (const file of found) {
    for (const next of imports(file, tree.get(file) ?? '')) if (tree.has(next)) found.add(next);
  }
  return [...found];
}

export const linesOf = (text = ''): number => text.split('\n').length - 1;

export const serviceNames = (tree: Tree): readonly string[] =>
  [...tree.keys()].flatMap((file) => /^src\/([a-z]+)\/start\.ts$/.exec(file)?.[1] ?? []);

/**
 * Sign-in pages and second factors, which SIGNIN_PAGES turns on, with the SQL that they alone need.
 */
const OPTIONAL = /\/(signin|factors)\//;

/** What each scope adds to read, by folder: how a file is loaded makes no difference. */
const SCOPES: Readonly<Record<string, (file: string) => boolean>> = {
  core: (file) => /^src\/([^/]+\.ts$|(runtime|http|db|crypto)\/)/.test(file),
  secrets: (file) => file.startsWith('src/secrets/'),
  identity: (file) => file.startsWith('src/identity/') && !OPTIONAL.test(file),
  webhook: (file) => file.startsWith('src/webhook/'),
  signin: (file) => OPTIONAL.test(file),
  commands: (file) => file.startsWith('src/commands/'),
};

/** The files of a scope in reading order: from the entry points to what they import. */
export function filesOf(tree: Tree, scope: string): readonly string[] {
  const isWanted = SCOPES[scope] ?? (() => false);
  const entries = ['routes', 'start', 'settings'].map((name) => `src/${scope}/${name}.ts`);
  const inOrder = reachable(tree, [...entries, 'src/cli.ts'], importsOf);
  return [...new Set([...inOrder, ...tree.keys()])].filter(isWanted);
}

/**
 * At most so many tokens. A service counts with the core. A ceiling may be lowered; it is raised
 * only for a feature whose description says so.
 */
export const BUDGET = {
  core: 38_000,
  secrets: 50_000,
  identity: 62_000,
  webhook: 67_000,
  signin: 21_500,
  all: 147_000,
} as const;

/**
 * How far a ceiling may be exceeded. A fix of a security fault must not wait until something else
 * was made shorter.
 */
const ALLOWANCE = 1.04;

/** @returns the number of tokens at which the check of a scope fails */
export const limitOf = (scope: keyof typeof BUDGET): number =>
  Math.floor(BUDGET[scope] * ALLOWANCE);

const SCOPE_NAMES = ['core', 'secrets', 'identity', 'webhook', 'signin', 'all'] as const;

/** What the rewriting aims at. `make audit` prints how far it is. */
export const GOALS: Readonly<Record<keyof typeof BUDGET, number>> = {
  core: 37_000,
  secrets: 46_500,
  identity: 57_500,
  webhook: 59_500,
  signin: 17_000,
  all: 121_000,
};

/** A line of code holds at most so many tokens on average. The goal is 8. */
export const MAX_DENSITY = 8.2;

/** By text: a file counts in several scopes, and in every tree that a test makes of the sources. */
const counted = new Map<string, number>();

function tokensOf(text: string): number {
  const known = counted.get(text);
  if (known !== undefined) return known;
  const count = countTokens(text);
  counted.set(text, count);
  return count;
}

export const sumTokens = (tree: Tree, files: readonly string[]): number =>
  files.reduce((total, file) => total + tokensOf(tree.get(file) ?? ''), 0);

/** How many tokens there are to read, by scope. A service includes the core. */
export function readingSizes(tree: Tree): Readonly<Record<string, number>> {
  const sizes = new Map(
    Object.keys(SCOPES).map((scope) => [scope, sumTokens(tree, filesOf(tree, scope))]),
  );
  const core = sizes.get('core') ?? 0;
  for (const name of serviceNames(tree)) sizes.set(name, core + (sizes.get(name) ?? 0));
  return { ...Object.fromEntries(sizes), all: sumTokens(tree, [...tree.keys()]) };
}

/** Tokens for each line of code; comments and empty lines do not count. */
export function densityOf(tree: Tree): number {
  const text = [...tree.values()].join('\n').replaceAll(/\/\*[\s\S]*?\*\//g, '');
  const lines = text.split('\n').filter((line) => line.trim() !== '' && !/^\s*\/\//.test(line));
  return sumTokens(tree, [...tree.keys()]) / lines.length;
}

/** @returns what exceeds the budget, one sentence each */
export function overBudget(tree: Tree): string[] {
  const sizes = readingSizes(tree);
  const scopes = SCOPE_NAMES.filter((scope) => (sizes[scope] ?? 0) > limitOf(scope)).map(
    (scope) => `${scope}: ${sizes[scope]} tokens, at most ${limitOf(scope)}`,
  );
  const files = [...tree]
    .filter(([, text]) => linesOf(text) > LIMITS.fileLines)
    .map(([file, text]) => `${file}: ${linesOf(text)} lines, at most ${LIMITS.fileLines}`);
  const density = densityOf(tree);
  const dense = `all: ${density.toFixed(1)} tokens a line of code, at most ${MAX_DENSITY}`;
  return [...scopes, ...files, ...(density > MAX_DENSITY ? [dense] : [])];
}

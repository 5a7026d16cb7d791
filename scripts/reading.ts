/**
 * What a reviewer reads, part by part, and the ceilings. Used by `make audit`, `make check` and
 * the tests in test/repository/.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { LIMITS } from './packed-forms.ts';
import { countSqlTokens, countTokens } from './tokens.ts';

/** Source texts by path, such as `src/platform/http/wire/server.ts`. */
export type Tree = ReadonlyMap<string, string>;

export const root = dirname(import.meta.dirname);

/** @param ending how the names of the wanted files end */
export function readTree(folder = 'src', ending = /\.(ts|sql)$/): Tree {
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
/** OpenID Connect, which OIDC turns on. */
const OIDC = /^src\/identity\/(store\/)?oidc\//;

/** The parts of the code, by folder: how a file is loaded makes no difference. */
const PARTS: Readonly<Record<Part, (file: string) => boolean>> = {
  platform: (file) => /^src\/([^/]+\.ts$|platform\/)/.test(file),
  secrets: (file) => file.startsWith('src/secrets/'),
  identity: (file) => file.startsWith('src/identity/') && !OPTIONAL.test(file) && !OIDC.test(file),
  webhook: (file) => file.startsWith('src/webhook/'),
  signin: (file) => OPTIONAL.test(file),
  oidc: (file) => OIDC.test(file),
  commands: (file) => file.startsWith('src/commands/'),
};

/**
 * At most so many tokens of TypeScript and SQL in each part. A ceiling is lowered after a part was
 * made smaller, and raised only for a feature whose description says so. Above it, `make check`
 * warns, and a release does not pass: the fix of a fault is never refused for its length.
 */
export const CEILINGS = {
  platform: 32_500,
  secrets: 12_300,
  identity: 25_500,
  webhook: 30_000,
  signin: 21_800,
  oidc: 10_000,
  commands: 21_800,
} as const;

export type Part = keyof typeof CEILINGS;
const isPart = (name: string): name is Part => Object.hasOwn(CEILINGS, name);
export const PART_NAMES: readonly Part[] = Object.keys(CEILINGS).filter(isPart);

/** The files of a part in reading order: from the entry points to what they import. */
export function filesOf(tree: Tree, part: Part): readonly string[] {
  const isWanted = PARTS[part];
  const entries = ['routes', 'start', 'settings'].map((name) => `src/${part}/${name}.ts`);
  const inOrder = reachable(tree, [...entries, 'src/cli.ts'], importsOf);
  return [...new Set([...inOrder, ...tree.keys()])].filter(isWanted);
}

/** A line of code holds at most so many tokens on average. The goal is 8. */
export const MAX_DENSITY = 8.2;

/** By text: a file counts in every tree that a test makes of the sources. */
const counted = new Map<string, number>();

/** Of TypeScript or SQL. */
export function tokensOf(file: string, text: string): number {
  const known = counted.get(text);
  if (known !== undefined) return known;
  const count = file.endsWith('.sql') ? countSqlTokens(text) : countTokens(text);
  counted.set(text, count);
  return count;
}

export const sumTokens = (tree: Tree, files: readonly string[]): number =>
  files.reduce((total, file) => total + tokensOf(file, tree.get(file) ?? ''), 0);

/** Scripts that run in browsers, such as `src/secrets/pages/envelope.js`. */
export const readScripts = (): Tree => readTree('src', /\/pages\/[a-z-]+\.js$/);

/** The one package at run time. */
export const readDependency = (): Tree => readTree('node_modules/postgres/src', /\.js$/);

/** How many tokens a reader of each part reads. */
export function sizesOf(tree: Tree): ReadonlyMap<Part, number> {
  const sizes = PART_NAMES.map((part) => {
    const files = [...tree.keys()].filter(PARTS[part]);
    return [part, sumTokens(tree, files)] as const;
  });
  return new Map(sizes);
}

/** @returns one sentence for each part that is above its ceiling */
export function aboveCeilings(tree: Tree): string[] {
  return [...sizesOf(tree)]
    .filter(([part, tokens]) => tokens > CEILINGS[part])
    .map(([part, tokens]) => `${part} has ${tokens} tokens; its ceiling is ${CEILINGS[part]}.`);
}

/** Tokens for each line of code; comments and empty lines do not count. */
export function densityOf(tree: Tree): number {
  const text = [...tree.values()].join('\n').replaceAll(/\/\*[\s\S]*?\*\//g, '');
  const lines = text.split('\n').filter((line) => !/^\s*(\/\/|--|$)/.test(line));
  return sumTokens(tree, [...tree.keys()]) / lines.length;
}

/** @returns which files are too long, and whether lines hold too much, one sentence each */
export function overLimits(tree: Tree): string[] {
  const files = [...tree]
    .filter(([, text]) => linesOf(text) > LIMITS.fileLines)
    .map(([file, text]) => `${file}: ${linesOf(text)} lines, at most ${LIMITS.fileLines}`);
  const density = densityOf(tree);
  const dense = `all: ${density.toFixed(1)} tokens a line of code, at most ${MAX_DENSITY}`;
  return [...files, ...(density > MAX_DENSITY ? [dense] : [])];
}

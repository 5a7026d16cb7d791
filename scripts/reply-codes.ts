/**
 * Compares the error codes that the routes sent while the tests ran with those that their rows
 * declare: `node scripts/reply-codes.js FILE [--all]`. `test/support/gatehouse.ts` notes them in
 * the file, as lines of `gatehouse_requests_refused_total`. With `--all`, the tests must have
 * caused each declared code.
 */
import { existsSync, readFileSync } from 'node:fs';
import type { Route } from '../src/platform/http/route/route.ts';
import { createPlainRoutes } from '../src/webhook/plain.ts';
import { TABLES } from './routes.ts';

type Row = Pick<Route<never>, 'method' | 'pattern' | 'errors'>;
type Codes = Map<string, Set<string>>;

const LINE = /^gatehouse_requests_refused_total\{service="(\w+)",route="([^"]+)",reason="(\w+)"\}/;

/** Rows that share a list of codes, and so declare more than each of them sends. */
const GROUPS = [
  [
    /^identity \w+ \/(login|link|logout|account|oidc\/(authorize|consent|logout))/,
    'identity: the sign-in pages',
  ],
  [/^secrets POST \/(s|r|request|answer)\//, 'secrets: what needs the key of a link'],
] as const;

/** What is declared, although no test can cause it there. */
const UNREACHED = [
  // A bug, load, and a slow list: they are caused for some routes.
  [/./, ['internal', 'overloaded', 'request_timeout', 'too_slow']],
  // A parameter that may be any text.
  [/ GET \/(pages\/\{file\}|(s|r|request|answer)\/\{id\})$/, ['invalid_path']],
  // Two tokens, of which POST can have one in its body.
  [/ GET \/oidc\/userinfo$/, ['invalid_request']],
  // A deleted user is no caller any more, and gets 401.
  [/ POST \/api\/auth\/delete$/, ['not_found']],
  // Instead, a page leads on to the next step.
  [/^identity: the sign-in pages$/, ['signin_too_old', 'second_factor_needed']],
] as const;

function add(codes: Codes, name: string, code: string): void {
  const known = codes.get(name) ?? new Set();
  codes.set(name, known.add(code));
}

/** @returns the codes that each route sent, by its service, method and pattern */
export function readNoted(text: string): Codes {
  const noted: Codes = new Map();
  for (const line of text.split('\n')) {
    const [, service, route = '', code = ''] = LINE.exec(line) ?? [];
    const reachedRoute = service !== undefined && !route.startsWith('(');
    if (reachedRoute) add(noted, `${service} ${route}`, code);
  }
  return noted;
}

function grouped(codes: Codes): Codes {
  const all: Codes = new Map();
  for (const [name, own] of codes) {
    const [, group = name] = GROUPS.find(([names]) => names.test(name)) ?? [];
    for (const code of own) add(all, group, code);
  }
  return all;
}

const isUnreached = (name: string, code: string): boolean =>
  UNREACHED.some(([names, codes]) => names.test(name) && codes.some((one) => one === code));

/**
 * @param tables the rows of each service, of all its variants
 * @returns a line for each route that sent what it does not declare, or (`isWhole`) did not send
 * what it declares
 */
export function compareCodes(
  noted: Codes,
  tables: Readonly<Record<string, readonly Row[]>>,
  isWhole: boolean,
): string[] {
  const declared: Codes = new Map();
  for (const [service, rows] of Object.entries(tables)) {
    for (const { method, pattern, errors } of rows)
      for (const code of errors) add(declared, `${service} ${method} ${pattern}`, code);
  }
  const undeclared = differences(noted, declared, 'sends, but does not declare');
  if (!isWhole) return undeclared;
  const what = 'declares, but no test causes';
  return [...undeclared, ...differences(grouped(declared), grouped(noted), what, isUnreached)];
}

/** @param isExcused whether a code may be missing among the others */
const differences = (
  codes: Codes,
  others: Codes,
  what: string,
  isExcused: (name: string, code: string) => boolean = () => false,
): string[] =>
  [...codes].flatMap(([name, own]) => {
    const known = others.get(name) ?? new Set();
    const rest = [...own].filter((code) => !known.has(code) && !isExcused(name, code));
    return rest.length === 0 ? [] : [`${name} ${what}: ${rest.sort().join(', ')}`];
  });

if (process.argv[1] === import.meta.filename) {
  const [, , file = '', option] = process.argv;
  const noted = readNoted(existsSync(file) ? readFileSync(file, 'utf8') : '');
  const tables = Object.entries(TABLES).map(([name, parts]) => {
    const rows = Object.values<readonly Row[]>({ ...parts }).flat();
    return [name, name === 'webhook' ? [...rows, ...createPlainRoutes()] : rows];
  });
  const problems = compareCodes(noted, Object.fromEntries(tables), option === '--all');
  for (const problem of problems) process.stderr.write(`${problem}\n`);
  process.exitCode = problems.length > 0 ? 1 : 0;
}

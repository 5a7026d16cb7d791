/**
 * `make audit`, or `make audit SERVICE=secrets`: what a reviewer of one service needs. The files in
 * reading order with their tokens, the environment variables, the routes, the SQL statements, and
 * every import from outside the project. `make audit SINCE=COMMIT`: only what has changed since.
 */
import { createHash } from 'node:crypto';
import { defaultsOf } from './variables.ts';
import { changesSince, isCommit } from './audit-changes.ts';
import {
  CEILINGS,
  densityOf,
  filesOf,
  importsOf,
  linesOf,
  MAX_DENSITY,
  type Part,
  PART_NAMES,
  readDependency,
  readScripts,
  readTree,
  serviceNames,
  sizesOf,
  sumTokens,
  tokensOf,
} from './reading.ts';
import { listRoutes } from './routes.ts';

const tree = readTree();
const names = serviceNames(tree);

function print(line = ''): void {
  process.stdout.write(`${line}\n`);
}

const LABELS: Readonly<Record<Part, string>> = {
  platform: 'platform, read once for all services',
  secrets: 'serve secrets, on top of the platform',
  identity: 'serve identity, on top of the platform',
  webhook: 'serve webhook, on top of the platform',
  signin: 'sign-in pages and second factors, which identity loads only with SIGNIN_PAGES=on',
  oidc: 'OpenID Connect, which identity loads only with OIDC=on',
  commands: 'commands',
};

function printSizes(): void {
  print(
    'Tokens to read: of TypeScript and SQL, their ceiling, and of scripts for browsers. Comments do not count.',
  );
  const scripts = sizesOf(readScripts());
  for (const [part, tokens] of sizesOf(tree)) {
    const numbers = [tokens, CEILINGS[part], scripts.get(part) ?? 0];
    print(`${columns(numbers)}  ${LABELS[part]}`);
  }
  const driver = readDependency();
  print(
    `${columns([sumTokens(driver, [...driver.keys()])])}${' '.repeat(16)}  postgres, the one dependency`,
  );
  print(`${densityOf(tree).toFixed(1)} of ${MAX_DENSITY} tokens for each line of code`);
}

const columns = (numbers: readonly number[]): string =>
  numbers.map((number) => String(number).padStart(8)).join('');

function printFiles(title: string, files: readonly string[]): void {
  print(`\n${title}`);
  for (const file of files) {
    print(`${String(tokensOf(file, tree.get(file) ?? '')).padStart(7)}  ${file}`);
  }
}

/**
 * Files for browsers, with their lines and digests: a service delivers scripts as they are here.
 */
function printPages(folder: string): void {
  const pages = [...readTree('src', /\.(js|html|css)$/)];
  const own = pages.filter(([file]) => file.startsWith(`src/${folder}/`));
  if (own.length === 0) return;
  print('\nFiles for browsers, with their lines and SHA-256');
  for (const [file, text] of own) {
    const digest = createHash('sha256').update(text).digest('hex');
    print(`${String(linesOf(text)).padStart(7)}  ${digest}  ${file}`);
  }
}

async function printVariables(name: string): Promise<void> {
  print('\nEnvironment variables: name, default');
  for (const [variable, fallback] of await defaultsOf(name)) {
    print(`  ${variable.padEnd(30)} ${fallback}`);
  }
}

function printRoutes(name: string): void {
  print('\nRoutes: method, pattern, and the credentials, one of which suffices');
  for (const line of listRoutes(name)) print(`  ${line}`);
}

/** A statement begins with its verb; anything else is a part of one. */
const STATEMENT =
  /\bsql(?:<[^`]*?>)?`\s*((?:select|insert|update|delete|with|create|alter|set|begin|commit|rollback)\b[^`]*)`/g;
const SHOWN = 150;

function printStatements(files: readonly string[]): void {
  print('\nSQL statements, by file and line (parts are shown as …)');
  for (const file of files) {
    const text = tree.get(file) ?? '';
    for (const found of text.matchAll(STATEMENT)) {
      const line = linesOf(text.slice(0, found.index)) + 1;
      print(`  ${file}:${line}  ${shortened(found[1] ?? '')}`);
    }
  }
}

function shortened(sql: string): string {
  const withoutParts = sql.replace(/\$\{[^}]*\}/g, '…').replace(/--.*$/gm, '');
  const statement = withoutParts.replace(/\s+/g, ' ').trim();
  return statement.length > SHOWN ? `${statement.slice(0, SHOWN - 1)}…` : statement;
}

function printOutside(files: readonly string[]): void {
  print('\nImports from outside the project');
  const usersByName = new Map<string, string[]>();
  for (const file of files) {
    const names = new Set(importsOf(file, tree.get(file) ?? ''));
    for (const name of names) {
      if (name.startsWith('src/')) continue;
      usersByName.set(name, [...(usersByName.get(name) ?? []), file.slice('src/'.length)]);
    }
  }
  for (const [name, users] of [...usersByName].sort()) {
    print(`  ${name.padEnd(24)} ${users.join(' ')}`);
  }
}

async function printService(name: string): Promise<void> {
  const part = PART_NAMES.find((one) => one === name);
  if (part === undefined) throw new Error(`${name} is no part`);
  const platform = filesOf(tree, 'platform');
  const own = filesOf(tree, part);
  const optional = filesOf(tree, 'signin').filter((file) => file.startsWith(`src/${name}/`));
  print(`\n=== serve ${name}`);
  printFiles(`Files of ${name}, with their tokens`, own);
  if (optional.length > 0) printFiles('Only with SIGNIN_PAGES=on', optional);
  printPages(name);
  await printVariables(name);
  printRoutes(name);
  printStatements([...own, ...optional, ...platform]);
  printOutside([...platform, ...own, ...optional]);
}

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // A reader that leaves, such as `head`.
  if (error.code === 'EPIPE') process.exit(0);
  process.stderr.write(`the list cannot be written: ${error.message}\n`);
  process.exit(1);
});

/** @param commit of an earlier review: only what has changed since is listed */
function printChanges(commit: string, services: readonly string[]): void {
  const parts = new Set<string>(['platform', 'signin', 'commands', ...services]);
  print(`Files that changed since ${commit}, with their tokens and the declarations to read`);
  for (const { file, from, names, text } of changesSince(commit)) {
    const part = PART_NAMES.find((one) => filesOf(new Map([[file, text ?? '']]), one).length > 0);
    if (part !== undefined && !parts.has(part)) continue;
    const tokens = text === null ? 'removed' : String(tokensOf(file, text));
    const origin = from === file ? '' : ` (was ${from})`;
    print(`${tokens.padStart(8)}  ${file}${origin}`);
    for (const name of names) print(`${' '.repeat(10)}${name}`);
  }
}

const [since = '', ...wanted] = process.argv.slice(2);
const unknown = wanted.find((name) => !names.includes(name));
if (unknown !== undefined) {
  const known = names.join(', ');
  process.stderr.write(`there is no service "${unknown}"; the services are ${known}\n`);
  process.exit(2);
}
if (since !== '' && !isCommit(since)) {
  process.stderr.write(`git knows no commit "${since}" here; see: git log\n`);
  process.exit(2);
}
const services = wanted.length > 0 ? wanted : names;
if (since === '') {
  printSizes();
  printFiles('Platform: read once for all services', filesOf(tree, 'platform'));
  printPages('platform');
  for (const name of services) await printService(name);
} else {
  printChanges(since, services);
}

/**
 * `make audit`, or `make audit SERVICE=secrets`: what a reviewer of one service needs. The files in reading order with
 * their lines, those loaded on demand, the environment variables, the routes, the SQL statements, and every import from
 * outside the project.
 */
import {
  BUDGET,
  linesOf,
  onDemand,
  readingLists,
  readingSizes,
  readTree,
  staticImports,
  type Tree,
} from './reading.ts';
import { SERVICES } from '../src/serve.ts';
import { allVariables } from '../src/settings.ts';

const tree = readTree();
const { core, services } = readingLists(tree);
const sizes = readingSizes(tree);
const print = (line = '') => void process.stdout.write(`${line}\n`);
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // A reader that leaves, such as `head`.
  if (error.code === 'EPIPE') process.exit(0);
  process.stderr.write(`the list cannot be written: ${error.message}\n`);
  process.exit(1);
});

function printFiles(title: string, files: readonly string[]): void {
  print(`\n${title}`);
  for (const file of files) print(`${String(linesOf(tree.get(file))).padStart(6)}  ${file}`);
}

/** A statement begins with its verb; anything else is a part of one. */
const STATEMENT =
  /\bsql(?:<[^`]*?>)?`\s*((?:select|insert|update|delete|with|create|alter|set|begin|commit|rollback)\b[^`]*)`/g;

function printStatements(files: readonly string[]): void {
  print('\nSQL statements, by file and line (parts are shown as …)');
  for (const file of files) {
    const text = tree.get(file) ?? '';
    for (const found of text.matchAll(STATEMENT)) {
      const statement = (found[1] ?? '')
        .replace(/\$\{[^}]*\}/g, '…')
        .replace(/--.*$/gm, '')
        .replace(/\s+/g, ' ')
        .trim();
      print(
        `  ${file}:${linesOf(text.slice(0, found.index)) + 1}  ${statement.length > 150 ? `${statement.slice(0, 149)}…` : statement}`,
      );
    }
  }
}

function printRoutes(name: string): void {
  print('\nRoutes: method, pattern, guard');
  for (const [file, text] of tree) {
    if (!file.startsWith(`src/${name}/`) && file !== 'src/http/probes.ts') continue;
    for (const [, row = ''] of text.matchAll(/\broute\(\{([\s\S]*?)\n {2,6}\}\)/g)) {
      const member = (member: string) => new RegExp(`\\b${member}: '?([^',\\n]+)`).exec(row)?.[1];
      print(
        `  ${(member('method') ?? 'GET').padEnd(6)} ${(member('pattern') ?? '(pages)').padEnd(34)} ${member('guard') ?? '(default of the table)'}`,
      );
    }
  }
}

function printOutside(tree: Tree, files: readonly string[]): void {
  print('\nImports from outside the project');
  const byName = new Map<string, string[]>();
  for (const file of files) {
    for (const name of staticImports(file, tree.get(file) ?? '')) {
      if (!name.startsWith('src/'))
        byName.set(name, [...(byName.get(name) ?? []), file.slice('src/'.length)]);
    }
  }
  for (const [name, users] of [...byName].sort()) print(`  ${name.padEnd(24)} ${users.join(' ')}`);
}

const wanted = process.argv.slice(2);
const unknown = wanted.find((name) => !services.has(name));
if (unknown !== undefined) {
  process.stderr.write(
    `there is no service "${unknown}"; the services are ${[...services.keys()].join(', ')}\n`,
  );
  process.exit(2);
}
print('Lines to read, comments included, at most 120 columns wide, and the budget:');
const LABELS: Readonly<Record<string, string>> = {
  core: 'core',
  all: 'all',
  signin: 'sign-in pages and second factors',
};
for (const [scope, lines] of Object.entries(sizes)) {
  const limit = Object.entries(BUDGET).find(([name]) => name === scope)?.[1];
  print(
    `${String(lines).padStart(6)} of ${limit}  ${LABELS[scope] ?? `serve ${scope}, the core included`}`,
  );
}
printFiles('Core: read by every service', core);
const ofServices = [...services.values()].flat();
const isShared = (file: string) =>
  !ofServices.includes(file) &&
  ![...services.keys(), 'commands'].some((folder) => file.startsWith(`src/${folder}/`));
printFiles(
  'Core: loaded on demand, if the settings ask for it',
  onDemand(tree, core).filter(isShared),
);
for (const [name, files] of services) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  print(`\n=== serve ${name}`);
  printFiles(`Files of ${name}, its routes first`, files);
  const demanded = onDemand(tree, files).filter((file) => !core.includes(file));
  if (demanded.length > 0)
    printFiles(
      'Loaded on demand: at the start, for housekeeping, or if the settings ask for it',
      demanded,
    );
  const load = Object.entries(SERVICES).find(([service]) => service === name)?.[1];
  print('\nEnvironment variables: name, default');
  for (const [variable, { fallback }] of Object.entries(
    allVariables(load ? [await load(name)] : []),
  ))
    print(`  ${variable.padEnd(30)} ${fallback}`);
  printRoutes(name);
  printStatements([...files, ...demanded, ...core]);
  printOutside(tree, [...core, ...files, ...demanded]);
}

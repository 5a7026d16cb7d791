/**
 * The documents against the code: variables, commands, endpoints, errors, metrics and figures.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { COMMANDS as EVENT_COMMANDS } from '../../src/commands/events.ts';
import { COMMANDS as IDENTITY_COMMANDS } from '../../src/commands/identity.ts';
import { COMMANDS as PROCESS_COMMANDS } from '../../src/commands/program.ts';
import { COMMANDS as SECRETS_COMMANDS } from '../../src/commands/secrets.ts';
import { COMMANDS as WEBHOOK_COMMANDS } from '../../src/commands/webhook.ts';
import type { Route } from '../../src/platform/http/route/route.ts';
import { ERRORS } from '../../src/platform/http/route/errors.ts';
import type { ServiceName } from '../../src/serve.ts';
import { ConfigurationError } from '../../src/platform/process/settings.ts';
import { type Source, SOURCES as SENDERS } from '../../src/webhook/sources.ts';
import {
  CEILINGS,
  readDependency,
  readScripts,
  readTree,
  sizesOf,
  sumTokens,
} from '../../scripts/reading.ts';
import { TABLES } from '../../scripts/routes.ts';
import { runCommand } from '../support/commands.ts';
import { documentedMetrics, PAGES, readDocument as read, rowsUnder } from '../support/documents.ts';
import { root } from '../support/process.ts';
import { readConfig, SERVICES, VARIABLES } from '../support/settings.ts';

const run = promisify(execFile);
const firstCells = (rows: readonly string[][]) => rows.map(([first = '']) => first).sort();

test('configuration.md lists every variable with its default, and no other', () => {
  const rows = rowsUnder('docs/configuration.md', 'variable | default');
  const documented = rows.map(([name, fallback]) => [name, fallback]);
  assert.deepEqual(documented.sort(), Object.entries(VARIABLES).sort());
});

/** Names that a source reads from the environment itself, without asking. */
const directReads = (text: string) =>
  [...text.matchAll(/\{([^{}]*)\} = (?:process\.)?env(?:ironment)?\b/g)]
    .concat([...text.matchAll(/\benv(?:ironment)?(?:\.|\[')([A-Z][A-Z_]*)/g)])
    .flatMap(([, names = '']) => names.match(/\b[A-Z][A-Z_]+\b/g) ?? []);

/** The names in questions such as `env.get('NAME', …)`. */
const questions = (text: string) =>
  [...text.matchAll(/\benv\.\w+\(\s*'([A-Z][A-Z0-9_]+)'/g)].map(([, name = '']) => name);

test('configuration.md has every variable that the code asks for, and nothing else is read', () => {
  const names = readdirSync(join(root, 'src'), { encoding: 'utf8', recursive: true });
  const sources = names.filter((name) => name.endsWith('.ts')).map((name) => read(`src/${name}`));
  assert.deepEqual(sources.flatMap(directReads), []);
  const documented = firstCells(rowsUnder('docs/configuration.md', 'variable | default'));
  const asked = sources.flatMap(questions);
  assert.ok(asked.length > 60);
  assert.deepEqual(
    asked.filter((name) => !documented.includes(name)),
    [],
  );
  assert.deepEqual(directReads('const { OPERATOR_TOKEN: given, HOME } = environment;'), [
    'OPERATOR_TOKEN',
    'HOME',
  ]);
  assert.deepEqual(directReads("environment.PORT ?? environment['HOST']"), ['PORT', 'HOST']);
});

/** What is expected in place of a text; none if the text is accepted. */
function formOf(name: string, text: string): string[] {
  const problem = problemsOf(SERVICES, { [name]: text }).find((one) => one.startsWith(`${name} `));
  const [, form] = / must be (?!set)(.*)\.$/.exec(problem ?? '') ?? [];
  return form === undefined ? [] : [form];
}

/** What a variable accepts, as its error says it, in the words of the table. */
function allowedOf(name: string): string {
  const forms = ['\u0001', '-1', 'x y', '999999999999', ' '].flatMap((text) => formOf(name, text));
  const [form] = forms;
  if (form === undefined) return 'any text';
  const shown = (number: string) => Number(number).toLocaleString('en-US');
  return form
    .replace(
      /a whole number from (\d+) to (\d+)/,
      (_, min, max) => `${shown(min)} to ${shown(max)}`,
    )
    .replace(/^one of (.*)$/, (_, values: string) =>
      values
        .split(', ')
        .map((value) => `\`${value}\``)
        .join(', '),
    );
}

test('configuration.md says of every variable which values are allowed', () => {
  for (const [name = '', , allowed = ''] of rowsUnder(
    'docs/configuration.md',
    'variable | default',
  )) {
    assert.equal(allowed, allowedOf(name).replace(/^`([^`]*)`$/, '$1'), name);
  }
});

function problemsOf(
  services: readonly ServiceName[],
  environment: Readonly<Record<string, string>> = {},
): readonly string[] {
  try {
    readConfig(services, 'serve', environment);
    return [];
  } catch (error) {
    assert.ok(error instanceof ConfigurationError);
    return error.problems;
  }
}

test('configuration.md names what each service requires', () => {
  const rows = rowsUnder('docs/configuration.md', 'service | must be set');
  assert.deepEqual(
    rows.map(([service]) => service),
    SERVICES,
  );
  for (const [name = '', required = ''] of rows) {
    const service = SERVICES.find((one) => one === name);
    assert.ok(service);
    const named = [...required.matchAll(/`([A-Z_]+)`/g)].map(([, variable = '']) => variable);
    const missing = named.filter((variable) => variable !== 'WEBHOOK_VARIANT');
    const reported = problemsOf([service]).flatMap(
      (problem) => problem.match(/\b[A-Z]+(_[A-Z]+)+\b/g) ?? [],
    );
    assert.deepEqual([...new Set(reported)].sort(), missing.sort(), name);
  }
});

test('commands.md has the help of every command', async () => {
  const program = join(root, 'dist/cli.js');
  const { stdout } = await run(process.execPath, [program, '--help']);
  const names = stdout.split('\n').filter((line) => line.startsWith('  '));
  const blocks = [...read('docs/commands.md').matchAll(/```\n([\s\S]*?)```/g)];
  assert.equal(blocks.length, names.length);
  const help = await Promise.all(
    names.map(async (line) => {
      const words = ['help', ...line.slice(2, 22).trim().split(' ')];
      // The program itself has this command: runCommand does not know it.
      const { stdout: shown } = words.includes('serve')
        ? await run(process.execPath, [program, ...words])
        : await runCommand(words, {});
      return shown.trim();
    }),
  );
  assert.deepEqual(blocks.map(([, text = '']) => text.trim()).sort(), help.sort());
});

test('the map leads to every document, and no document has more than 250 lines beside tables', () => {
  const map = read('docs/README.md');
  for (const page of PAGES.filter((name) => name !== 'docs/README.md')) {
    assert.ok(map.includes(`](${page.slice('docs/'.length)}`), page);
    const lines = read(page).split('\n');
    // commands.md is generated, and a table in all but form.
    const prose = page === 'docs/commands.md' ? [] : lines.filter((line) => !/^\|/.test(line));
    assert.ok(prose.length <= 250, `${page}: ${prose.length}`);
  }
});

/** What a newcomer was asked to do with the documents alone, and where it is done. */
const TASKS = [
  ['verify a signature at the target', 'delivery.md#verifying-a-delivery'],
  ['take a replica out', 'deploy.md#upgrade'],
  ['recover an account, also that of the last administrator', 'signin.md#recovering-an-account'],
  ['configure nginx', 'proxy-nginx.md'],
  ['rotate the server key', 'secrets.md#replacing-server_secret'],
  ['back up and restore', 'database.md#backup-and-restore'],
  ['upgrade a clone', 'deploy.md#upgrade-of-a-clone'],
  ['see why an event was not delivered', 'webhooks.md#inbox'],
  ['receive from a sender that is not listed', 'custom-senders.md'],
  ['run it inside my own Node program', 'embedding.md'],
];

test('README leads in two clicks to what a newcomer does', () => {
  assert.match(read('README.md'), /\]\(docs\/README\.md\)/);
  const rows = rowsUnder('docs/README.md', 'task | page');
  for (const [task = '', page = ''] of TASKS) {
    const [, links = ''] = rows.find(([name = '']) => name.startsWith(task)) ?? [];
    assert.ok(links.includes(`](${page})`), task);
  }
});

test('every diagram is drawn, with the words of its source', () => {
  const sources = readdirSync(join(root, 'docs/diagrams'));
  assert.ok(sources.length >= 5);
  for (const name of sources) {
    const labels = [...read(join('docs/diagrams', name)).matchAll(/label="([^"]*)"/g)];
    const picture = read(join('docs/pictures', name.replace('.dot', '.svg')));
    const drawn = [...picture.matchAll(/<text[^>]*>([^<]*)</g)].map(([, text = '']) =>
      text.replaceAll('&#160;', ' ').replaceAll('&#45;', '-').replaceAll('&#39;', "'"),
    );
    const lines = labels.flatMap(([, label = '']) => label.split('\\n'));
    assert.deepEqual(drawn.sort(), lines.sort(), name);
  }
});

test('errors.md lists every error code with its status, and no other', () => {
  const documented = rowsUnder('docs/errors.md', 'code | status').map(([code, status]) => [
    code,
    status,
  ]);
  assert.deepEqual(
    documented,
    Object.entries(ERRORS).map(([code, [status]]) => [code, String(status)]),
  );
});

const isProbe = ({ pattern }: Route<never>) =>
  ['/livez', '/readyz', '/openapi', '/openapi.json'].includes(pattern);
const namesOf = (routes: ReadonlyArray<Route<never>>) =>
  routes.map(({ method, pattern }) => `${method} ${pattern}`).sort();
const rowsOf = (service: string) => TABLES[service]?.all ?? [];
const ownRows = (service: string) => rowsOf(service).filter((route) => !isProbe(route));
const ROUTES: ReadonlyArray<readonly [document: string, routes: ReadonlyArray<Route<never>>]> = [
  ['docs/identity.md docs/signin.md', ownRows('identity')],
  ['docs/secrets.md', ownRows('secrets')],
  ['docs/webhooks.md', ownRows('webhook')],
  ['docs/observability.md', rowsOf('identity').filter(isProbe)],
];
for (const [document, routes] of ROUTES) {
  test(`${document} lists every endpoint, and no other`, () => {
    const rows = document.split(' ').flatMap((page) => rowsUnder(page, 'method and path'));
    assert.deepEqual(firstCells(rows), namesOf(routes));
  });
}

test('senders.md says of every source what it signs', () => {
  const inBody = (places: readonly string[]) =>
    places.length > 0 && places.every((place) => place.startsWith('/'));
  const yes = (isSigned: boolean) => (isSigned ? 'yes' : 'no');
  const signed = Object.entries<Source>(SENDERS)
    .filter(([name]) => name !== 'custom')
    .map(([name, { scheme, event, deliveryId, time, unique }]) => {
      const text = scheme?.text ?? '';
      const isTimed = text.includes('{timestamp}') || time !== undefined;
      const isIdentified = text.includes('{id}') || inBody(deliveryId) || unique !== undefined;
      return [name, isTimed, inBody(event), isIdentified].map((value) =>
        typeof value === 'string' ? value : yes(scheme !== null && value),
      );
    });
  assert.deepEqual(rowsUnder('docs/senders.md', 'source | time is signed'), signed);
});

test('the documents list every command, and no other', async () => {
  const documented = PAGES.flatMap((page) => rowsUnder(page, 'command | purpose'));
  const services = [
    ...IDENTITY_COMMANDS,
    ...SECRETS_COMMANDS,
    ...WEBHOOK_COMMANDS,
    ...EVENT_COMMANDS,
  ];
  const names = ['serve', ...[...PROCESS_COMMANDS, ...services].map(({ name }) => name)];
  assert.deepEqual(firstCells(documented), names.sort());
  const program = [join(root, 'dist/cli.js')];
  const { stdout } = await run(process.execPath, [...program, '--help'], { cwd: root });
  const lines = stdout.split('\n').filter((line) => line.startsWith('  '));
  const helped = lines.map((line) => line.slice(2, 21).trim());
  assert.deepEqual(helped.sort(), firstCells(documented));
});

const SOURCES = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' }).filter(
  (name) => name.endsWith('.ts'),
);

test('observability.md lists every metric, and no other', () => {
  const source = SOURCES.map((name) => read(join('src', name))).join('\n');
  const declared = source.match(/(?<=')(gatehouse|process|nodejs)_[a-z0-9_]+(?=')/g) ?? [];
  assert.deepEqual(
    documentedMetrics()
      .map(({ name }) => name)
      .sort(),
    [...new Set(declared)].sort(),
  );
});

/**
 * Calls that write a warning or an error, and functions that pass their message on. The level is
 * that of the log.
 */
const WRITES = /\b(?:log\.(warn|error|limited)|(warn))\(\s*(?:'[a-z_]+', )?((?:'[^']*'|[^,()'])+)/g;
/**
 * Messages that are not a constant where they are written: why `serve` has ended, and the warnings
 * about settings.
 */
const PASSED_ON = ['message.replace', 'warning'];
/** `log[…]` with a template, in one place. */
const FACTORS = ['second factor wrong', 'second factor throttled'];

test('observability.md lists every warning and error of the log with its level, and no other', () => {
  const texts = SOURCES.map((name) =>
    read(join('src', name)).replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, ''),
  );
  const constantsOf = (text: string) =>
    [...text.matchAll(/const ([A-Z_]+) =\s*'([^']*)';/g)].map(
      ([, name = '', value = '']) => [name, value] as const,
    );
  const passedOn: string[] = [];
  const found = texts.flatMap((text) => {
    // Those of the file itself go before those that it imports.
    const constants = new Map([...texts, text].flatMap(constantsOf));
    return [...text.matchAll(WRITES)].flatMap(([, level, warn, argument = '']) => {
      const named = [...argument.matchAll(/'([^']*)'|\b([A-Z][A-Z_]+)\b/g)].map(
        ([, given, name = '']) => given ?? constants.get(name) ?? name,
      );
      if (named.length === 0) passedOn.push(argument.trim());
      const given = level === 'limited' ? 'warn' : level;
      const assumed = warn ? 'warn' : 'error';
      return named.map((message) => `${given ?? assumed}: ${message}`);
    });
  });
  assert.deepEqual(passedOn.sort(), PASSED_ON.sort());
  assert.equal(texts.join('').match(/\blog\[/g)?.length, 1);
  found.push(...FACTORS.map((text) => `warn: ${text}`));
  const documented = rowsUnder('docs/observability.md', 'log message').map(
    ([text, level]) => `${level}: ${text}`,
  );
  assert.deepEqual(documented.sort(), [...new Set(found)].sort());
});

test('the changelog begins with the version of the package', () => {
  const { version }: { version: string } = JSON.parse(read('package.json'));
  assert.equal(/^## ([0-9.]+)/m.exec(read('CHANGELOG.md'))?.[1], version);
});

test('the README has at most 200 lines', () => {
  assert.ok(read('README.md').split('\n').length <= 201);
});

/** Whether a figure of a document is within 2 % of what is counted, so that a fix need not touch it. */
function assertClose(shown: string, counted: number, what: string): void {
  const figure = Number(shown.replaceAll(',', ''));
  const isClose = Math.abs(figure - counted) <= Math.max(50, counted * 0.02);
  assert.ok(isClose, `${what}: ${shown} is stated, ${counted} are counted`);
}

test('README states how much there is to read', () => {
  const rows = rowsUnder('README.md', 'part to read | TypeScript and SQL | scripts for browsers');
  const code = [...sizesOf(readTree()).values()];
  const scripts = [...sizesOf(readScripts()).values()];
  assert.equal(rows.length, code.length + 1);
  for (const [at, [part = '', typeScript = '', browser = '']] of rows.slice(0, -1).entries()) {
    assertClose(typeScript, code[at] ?? 0, part);
    assertClose(browser.replace('–', '0'), scripts[at] ?? 0, `scripts of ${part}`);
  }
  const driver = readDependency();
  const [dependency = '', tokens = ''] = rows.at(-1) ?? [];
  assertClose(tokens, sumTokens(driver, [...driver.keys()]), dependency);
});

test('CONTRIBUTING states the ceilings', () => {
  const rows = rowsUnder('CONTRIBUTING.md', 'part | at most');
  const shown = Object.entries(CEILINGS).map(([part, most]) => [
    part,
    most.toLocaleString('en-US'),
  ]);
  assert.deepEqual(rows, shown);
});

test('CONTRIBUTING has each end-to-end target, what it needs and how long it takes', async () => {
  const { stderr } = await run(process.execPath, [join(root, 'scripts/e2e.js')]).catch(
    (error: { stderr: string }) => error,
  );
  const targets = [...stderr.matchAll(/make e2e NAME=(\w+)/g)].map(([, name = '']) => name);
  const rows = rowsUnder('CONTRIBUTING.md', 'end-to-end target');
  assert.ok(targets.length > 0, stderr);
  assert.deepEqual(firstCells(rows), targets.sort());
  for (const cells of rows)
    assert.ok(
      cells.every((cell) => cell !== ''),
      cells.join(),
    );
});

test('scaling.md adds up the connections of replicas, and how many PostgreSQL has room for', () => {
  const numbersOf = (text: string) => (text.replaceAll(',', '').match(/\d+/g) ?? []).map(Number);
  const rows = rowsUnder('docs/scaling.md', 'replicas | one service each');
  const [[, ...perReplica] = [], ...more] = rows.map((row) => numbersOf(row.join(' ')));
  assert.equal(more.length, 2);
  for (const [replicas = 0, ...sums] of more) {
    assert.deepEqual(
      sums,
      perReplica.map((connections) => connections * replicas),
    );
  }
  const sentence = /`max_connections` of .* of all three/.exec(read('docs/scaling.md'))?.[0] ?? '';
  const [all = 0, reserved = 0, ...room] = numbersOf(sentence);
  assert.deepEqual(
    room,
    perReplica.map((connections) => Math.floor((all - reserved) / connections)),
  );
});

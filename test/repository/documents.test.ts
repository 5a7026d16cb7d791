/** The documents against the code: variables, commands, endpoints, errors, metrics and figures. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import {
  CEILINGS,
  readDependency,
  readScripts,
  readTree,
  sizesOf,
  sumTokens,
} from '../../scripts/reading.ts';
import { TABLES } from '../../scripts/routes.ts';
import { ERRORS } from '../../src/platform/http/route/errors.ts';
import { type Source, SOURCES as SENDERS } from '../../src/webhook/sources.ts';
import { COMMANDS, runCommand } from '../support/commands.ts';
import {
  documentedMetrics,
  PAGES,
  readDocument as read,
  rowsUnder,
  SOURCES,
} from '../support/documents.ts';
import { root } from '../support/process.ts';
import { problems, SERVICES, VARIABLES } from '../support/settings.ts';

const run = promisify(execFile);
const program = join(root, 'dist/cli.js');
const firstCells = (rows: readonly string[][]) => rows.map(([first = '']) => first).sort();
const variableRows = rowsUnder('docs/configuration.md', 'variable | default');

test('configuration.md lists every variable with its default, and no other', () => {
  const documented = variableRows.map(([name, fallback]) => [name, fallback]);
  assert.deepEqual(documented.sort(), Object.entries(VARIABLES).sort());
});

/** Names that a source reads from the environment itself, without asking. */
const directReads = (text: string) =>
  [...text.matchAll(/\{([^{}]*)\} = (?:process\.)?env(?:ironment)?\b/g)]
    .concat([...text.matchAll(/\benv(?:ironment)?(?:\.|\[')([A-Z][A-Z_]*)/g)])
    .flatMap(([, names = '']) => names.match(/\b[A-Z][A-Z_]+\b/g) ?? []);

test('configuration.md has every variable that the code asks for, and nothing else is read', () => {
  const texts = SOURCES.map(read);
  assert.deepEqual(texts.flatMap(directReads), []);
  const asked = texts.flatMap(
    (text) => text.match(/(?<=\benv\.\w+\(\s*')[A-Z][A-Z0-9_]+(?=')/g) ?? [],
  );
  assert.ok(asked.length > 60);
  const documented = firstCells(variableRows);
  const missing = asked.filter((name) => !documented.includes(name));
  assert.deepEqual(missing, []);
  const planted = "const { TOKEN: given, HOME } = environment; environment.PORT ?? env['HOST']";
  assert.deepEqual(directReads(planted), ['TOKEN', 'HOME', 'PORT', 'HOST']);
});

/** What a variable accepts, as its error says it, in the words of the table. */
function allowedOf(name: string): string {
  const found = ['\u0001', '-1', 'x y', '999999999999', ' '].flatMap((text) =>
    problems({ [name]: text }),
  );
  const forms = found.map((problem) =>
    problem.startsWith(`${name} `) ? / must be (?!set)(.*)\.$/.exec(problem)?.[1] : undefined,
  );
  const form = forms.find((one) => one !== undefined) ?? 'any text';
  const shown = (number: string) => Number(number).toLocaleString('en-US');
  return form
    .replace(
      /a whole number from (\d+) to (\d+)/,
      (_, min, max) => `${shown(min)} to ${shown(max)}`,
    )
    .replace(/^one of (.*)$/, (_, values: string) => values.replaceAll(/[^, ]+/g, '`$&`'));
}

test('configuration.md says of every variable which values are allowed', () => {
  for (const [name = '', , allowed = ''] of variableRows)
    assert.equal(allowed, allowedOf(name).replace(/^`([^`]*)`$/, '$1'), name);
});

test('configuration.md names what each service requires', () => {
  const rows = rowsUnder('docs/configuration.md', 'service | must be set');
  const unset = { DATABASE_URL: undefined, SERVER_SECRET: undefined, AUTH_TOKEN: undefined };
  const required = SERVICES.map((service) => {
    const reported = problems(unset, [service])
      .join()
      .match(/\b[A-Z]+(_[A-Z]+)+\b/g);
    return [service, [...new Set(reported)].sort()];
  });
  assert.deepEqual(
    rows.map(([service, text = '']) => {
      const named = text.match(/(?<=`)[A-Z_]+(?=`)/g) ?? [];
      return [service, named.filter((name) => name !== 'WEBHOOK_VARIANT').sort()];
    }),
    required,
  );
});

test('the documents list every command, and commands.md has the help of each', async () => {
  const names = ['serve', ...COMMANDS.map(({ name }) => name)].sort();
  assert.deepEqual(
    firstCells(PAGES.flatMap((page) => rowsUnder(page, 'command | purpose'))),
    names,
  );
  const { stdout } = await run(process.execPath, [program, '--help']);
  const listed = stdout.split('\n').filter((line) => line.startsWith('  '));
  assert.deepEqual(listed.map((line) => line.slice(2, 21).trim()).sort(), names);
  const help = await Promise.all(
    names.map(async (name) => {
      const words = ['help', ...name.split(' ')];
      // The program itself has this command: runCommand does not know it.
      const isServe = name === 'serve';
      const shown = await (isServe
        ? run(process.execPath, [program, ...words])
        : runCommand(words, {}));
      return shown.stdout.trim();
    }),
  );
  const blocks = [...read('docs/commands.md').matchAll(/```\n([\s\S]*?)```/g)];
  assert.deepEqual(blocks.map(([, text = '']) => text.trim()).sort(), help.sort());
});

test('the map leads to every document, and no document is too long', () => {
  const map = read('docs/README.md');
  assert.match(read('README.md'), /\]\(docs\/README\.md\)/);
  for (const page of PAGES.filter((name) => name !== 'docs/README.md')) {
    assert.ok(map.includes(`](${page.slice('docs/'.length)}`), page);
    // commands.md is generated, and a table in all but form.
    if (page === 'docs/commands.md') continue;
    const prose = read(page)
      .split('\n')
      .filter((line) => !line.startsWith('|'));
    assert.ok(prose.length <= 250, `${page}: ${prose.length}`);
  }
  assert.ok(read('README.md').split('\n').length <= 201);
});

test('every diagram is drawn, with the words of its source', () => {
  const sources = readdirSync(join(root, 'docs/diagrams'));
  assert.ok(sources.length >= 5);
  for (const name of sources) {
    const labels = read(join('docs/diagrams', name)).match(/(?<=label=")[^"]*/g) ?? [];
    const picture = read(join('docs/pictures', name.replace('.dot', '.svg')));
    const drawn = [...picture.matchAll(/<text[^>]*>([^<]*)</g)].map(([, text = '']) =>
      text.replaceAll('&#160;', ' ').replaceAll('&#45;', '-').replaceAll('&#39;', "'"),
    );
    const lines = labels.flatMap((label) => label.split('\\n'));
    assert.deepEqual(drawn.sort(), lines.sort(), name);
  }
});

test('errors.md lists every error code with its status, and no other', () => {
  assert.deepEqual(
    rowsUnder('docs/errors.md', 'code | status').map(([code, status]) => [code, status]),
    Object.entries(ERRORS).map(([code, [status]]) => [code, String(status)]),
  );
});

const PROBES = ['/livez', '/readyz', '/openapi', '/openapi.json'];
const routesOf = (service: string, isProbe: boolean) =>
  (TABLES[service]?.all ?? [])
    .filter(({ pattern }) => PROBES.includes(pattern) === isProbe)
    .map(({ method, pattern }) => `${method} ${pattern}`);

test('the documents list every endpoint, and no other', () => {
  for (const [service, isProbe, ...pages] of [
    ['identity', false, 'docs/identity.md', 'docs/signin.md'],
    ['secrets', false, 'docs/secrets.md'],
    ['webhook', false, 'docs/webhooks.md'],
    ['identity', true, 'docs/observability.md'],
  ] as const) {
    const rows = pages.flatMap((page) => rowsUnder(page, 'method and path'));
    assert.deepEqual(firstCells(rows), routesOf(service, isProbe).sort());
  }
});

test('senders.md says of every source what it signs', () => {
  const inBody = (places: readonly string[]) =>
    places.length > 0 && places.every((place) => place.startsWith('/'));
  const signed = Object.entries<Source>(SENDERS)
    .filter(([name]) => name !== 'custom')
    .map(([name, { scheme, event, deliveryId, time, unique }]) => {
      const text = scheme?.text ?? '';
      const isTimed = text.includes('{timestamp}') || time !== undefined;
      const isIdentified = text.includes('{id}') || inBody(deliveryId) || unique !== undefined;
      const all = [isTimed, inBody(event), isIdentified];
      return [name, ...all.map((isSigned) => (scheme !== null && isSigned ? 'yes' : 'no'))];
    });
  assert.deepEqual(rowsUnder('docs/senders.md', 'source | time is signed'), signed);
});

test('observability.md lists every metric, and no other', () => {
  const source = SOURCES.map(read).join('\n');
  const declared = source.match(/(?<=')(gatehouse|process|nodejs)_[a-z0-9_]+(?=')/g) ?? [];
  const documented = documentedMetrics().map(({ name }) => name);
  assert.deepEqual(documented.sort(), [...new Set(declared)].sort());
});

/** Calls that write a warning or an error, and functions that pass their message on. */
const WRITES = /\b(?:log\.(warn|error|limited)|(warn))\(\s*(?:'[a-z_]+', )?((?:'[^']*'|[^,()'])+)/g;
/** No constants where they are written: why `serve` has ended, and the warnings about settings. */
const PASSED_ON = ['message.replace', 'warning'];
/** `log[…]` with a template, in one place. */
const FACTORS = ['warn: second factor wrong', 'warn: second factor throttled'];

test('observability.md lists every warning and error of the log with its level, and no other', () => {
  const texts = SOURCES.map((name) => read(name).replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, ''));
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
      const isWarning = level === 'limited' || level === 'warn' || warn !== undefined;
      return named.map((message) => `${isWarning ? 'warn' : 'error'}: ${message}`);
    });
  });
  assert.deepEqual(passedOn.sort(), PASSED_ON.sort());
  assert.equal(texts.join('').match(/\blog\[/g)?.length, 1);
  const documented = rowsUnder('docs/observability.md', 'log message').map(
    ([text, level]) => `${level}: ${text}`,
  );
  assert.deepEqual(documented.sort(), [...new Set([...found, ...FACTORS])].sort());
});

test('the changelog begins with the version of the package', () => {
  const { version }: { version: string } = JSON.parse(read('package.json'));
  assert.equal(/^## ([0-9.]+)/m.exec(read('CHANGELOG.md'))?.[1], version);
});

/**
 * Whether a figure of a document is within 2 % of what is counted, so that a fix need not touch it.
 */
function assertClose(shown: string, counted: number, what: string): void {
  const figure = Number(shown.replaceAll(',', '').replace('–', '0'));
  const isClose = Math.abs(figure - counted) <= Math.max(50, counted * 0.02);
  assert.ok(isClose, `${what}: ${shown} is stated, ${counted} are counted`);
}

test('README states how much there is to read, and CONTRIBUTING the ceilings', () => {
  const rows = rowsUnder('README.md', 'part to read | TypeScript and SQL | scripts for browsers');
  const scripts = [...sizesOf(readScripts()).values()];
  const code = [...sizesOf(readTree()).values()];
  assert.equal(rows.length, code.length + 1);
  for (const [at, tokens] of code.entries()) {
    const [part = '', typeScript = '', browser = ''] = rows[at] ?? [];
    assertClose(typeScript, tokens, part);
    assertClose(browser, scripts[at] ?? 0, `scripts of ${part}`);
  }
  const driver = readDependency();
  const [dependency = '', tokens = ''] = rows.at(-1) ?? [];
  assertClose(tokens, sumTokens(driver, [...driver.keys()]), dependency);
  assert.deepEqual(
    rowsUnder('CONTRIBUTING.md', 'part | at most'),
    Object.entries(CEILINGS).map(([part, most]) => [part, most.toLocaleString('en-US')]),
  );
});

test('CONTRIBUTING has each end-to-end target, what it needs and how long it takes', async () => {
  const { stderr } = await run(process.execPath, [join(root, 'scripts/e2e.js')]).catch(
    (error: { stderr: string }) => error,
  );
  const rows = rowsUnder('CONTRIBUTING.md', 'end-to-end target');
  assert.deepEqual(firstCells(rows), stderr.match(/(?<=make e2e NAME=)\w+/g)?.sort());
  for (const cells of rows) assert.ok(!cells.includes(''), cells.join());
});

test('scaling.md adds up the connections of replicas, and how many PostgreSQL has room for', () => {
  const numbersOf = (text: string) => (text.replaceAll(',', '').match(/\d+/g) ?? []).map(Number);
  const rows = rowsUnder('docs/scaling.md', 'replicas | one service each');
  const [[, ...perReplica] = [], ...more] = rows.map((row) => numbersOf(row.join(' ')));
  assert.equal(more.length, 2);
  for (const [replicas = 0, ...sums] of more)
    assert.deepEqual(
      sums,
      perReplica.map((connections) => connections * replicas),
    );
  const sentence = /`max_connections` of .* of all three/.exec(read('docs/scaling.md'))?.[0] ?? '';
  const [all = 0, reserved = 0, ...room] = numbersOf(sentence);
  assert.deepEqual(
    room,
    perReplica.map((connections) => Math.floor((all - reserved) / connections)),
  );
});

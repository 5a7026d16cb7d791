/**
 * Packages that documents, messages and scripts name: nothing of a stranger is fetched by a name.
 * And what the Dockerfiles put into an image. `make e2e NAME=image` builds and runs both.
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { readDocument as read } from '../support/documents.ts';
import { root } from '../support/process.ts';

const PLACES = ['src', 'scripts', 'docs', 'deploy', '.github', '.ci'];
const FILES = ['Makefile', 'Dockerfile', 'Dockerfile.minimal', 'package.json'];
const TEXT = /\.(ts|js|md|html|json|ya?ml|conf|service|sh)$|\/(run|Caddyfile|Makefile|Dockerfile)$/;

function readTexts() {
  const below = PLACES.flatMap((place) =>
    readdirSync(join(root, place), { recursive: true, encoding: 'utf8' }).map((name) =>
      join(place, name),
    ),
  );
  const documents = readdirSync(root).filter((name) => name.endsWith('.md'));
  const names = [...below.filter((name) => TEXT.test(name)), ...documents, ...FILES];
  return names.map((name) => ({ name, text: read(name) }));
}
const texts = readTexts();

/** @returns commands that fetch and run, or install, whatever the registry has by a name */
function findUnpinned(text: string) {
  const npx = text.match(/\bnpx +(?!--no-install )[\w@./-]+/g) ?? [];
  const npm = [...text.matchAll(/\bnpm (?:exec|install|i)((?: +[^\s`"'&;|]+)+)/g)];
  const installs = npm.filter(([, words = '']) => {
    const named = words.split(/ +/).filter((word) => word !== '' && !word.startsWith('-'));
    return !named.every((word) => /^\.?\/|\.tgz$|.@[\d$]/.test(word));
  });
  return [...npx, ...installs.map(([command]) => command)];
}

test('no document, message or script fetches a package without its version', () => {
  assert.ok(texts.length > 100, `${texts.length} files`);
  const found = texts.flatMap(({ name, text }) =>
    findUnpinned(text).map((command) => `${name}: ${command}`),
  );
  assert.deepEqual(found, []);
  for (const unpinned of [
    'npx gatehouse',
    'npm exec --yes prettier -- src',
    'npm install postgres',
  ])
    assert.deepEqual(findUnpinned(`Run \`${unpinned}\`.`), [unpinned]);
});

test('documents import the package by the name that it has', () => {
  const { name }: { name: string } = JSON.parse(read('package.json'));
  const imported = texts.flatMap(({ text }) =>
    [...text.matchAll(/from '(gatehouse[\w-]*)'/g)].map(([, one]) => one),
  );
  assert.deepEqual([...new Set(imported)], [name]);
});

interface Installed {
  readonly dependencies?: object;
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly link?: boolean;
  readonly resolved?: string;
}

test('a production install is one package, and that package needs no other', () => {
  assert.deepEqual(Object.keys(JSON.parse(read('package.json')).dependencies), ['postgres']);
  const { packages }: { packages: Record<string, Installed> } = JSON.parse(
    read('package-lock.json'),
  );
  const installed = Object.entries(packages).filter(
    ([name, one]) => name !== '' && !one.dev && !one.optional && !one.link,
  );
  assert.deepEqual(
    installed.map(([name, { dependencies }]) => [name, dependencies]),
    [['node_modules/postgres', undefined]],
  );
  const downloaded = Object.values(packages).filter((one) => one.resolved && !one.link);
  assert.deepEqual(downloaded, [], 'the lock file names no download address');
});

const dockerfile = read('Dockerfile');
const finalStage = dockerfile.slice(dockerfile.lastIndexOf('\nFROM '));
const minimal = read('Dockerfile.minimal');

test('no package runs code while it is installed', () => {
  const all = texts.map(({ text }) => text).join('\n');
  const installs = all.match(/\bnpm ci\b.*|run\('npm', 'ci'.*/g) ?? [];
  assert.ok(installs.length >= 4);
  for (const line of installs) assert.match(line, /--ignore-scripts/);
});

test('the image holds only the program and its package, and runs unprivileged', () => {
  assert.match(
    finalStage,
    /^ENV NODE_ENV=production MALLOC_\S+ MALLOC_\S+\nCOPY --from=build \/image \/\n/m,
  );
  assert.equal([...finalStage.matchAll(/^(COPY|ADD|RUN)\b/gm)].length, 1);
  assert.match(dockerfile, /npm ci --ignore-scripts --omit=dev --omit=optional\n/);
  assert.match(
    dockerfile,
    /&& cp -R package\.json LICENSE sbom\.cdx\.json node_modules dist \/image\/app /,
    'all that is copied',
  );
  assert.match(finalStage, /^USER [1-9]\d*:[1-9]\d*$/m);
  assert.match(finalStage, /^ENTRYPOINT \["node", "\/app\/dist\/cli\.js"\]\nCMD \["serve"\]$/m);
});

test('both images are built and run alike', () => {
  const instructions = (text: string) => text.replace(/^#.*\n/gm, '');
  const build = (text: string) =>
    /^ARG [\s\S]*?(?=\nRUN mkdir \/minimal|\n\nFROM )/m.exec(
      instructions(text).replace(/\nFROM \$\{NODE\} AS build/, 'FROM build'),
    )?.[0];
  assert.ok(build(dockerfile)?.includes('npm run build'));
  assert.equal(build(minimal), build(dockerfile));
  const run = (text: string) => text.slice(text.lastIndexOf('\nUSER '));
  assert.equal(run(minimal), run(dockerfile));
});

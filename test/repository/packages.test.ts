/**
 * Packages that documents, messages and scripts name: nothing of a stranger is fetched by a name.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
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
  return names.map((name) => ({ name, text: readFileSync(join(root, name), 'utf8') }));
}

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
  const texts = readTexts();
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
  const { name }: { name: string } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const imported = readTexts().flatMap(({ text }) =>
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
  const read = (name: string) => JSON.parse(readFileSync(join(root, name), 'utf8'));
  assert.deepEqual(Object.keys(read('package.json').dependencies), ['postgres']);
  const { packages }: { packages: Record<string, Installed> } = read('package-lock.json');
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

/** Packages that documents, messages and scripts name: nothing of a stranger is fetched by a name. */
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
export function findUnpinned(text: string) {
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
});

test('a package without its version is found', () => {
  assert.deepEqual(findUnpinned('Run `npx gatehouse serve`.'), ['npx gatehouse']);
  assert.deepEqual(findUnpinned('npm exec --yes prettier -- src'), [
    'npm exec --yes prettier -- src',
  ]);
  assert.deepEqual(findUnpinned('npm install postgres'), ['npm install postgres']);
  assert.deepEqual(findUnpinned('npx --no-install gatehouse check'), []);
  assert.deepEqual(findUnpinned('npm install --prefix /usr/local ./x-0.1.0.tgz'), []);
});

test('documents import the package by the name that it has', () => {
  const { name }: { name: string } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const imported = readTexts().flatMap(({ text }) =>
    [...text.matchAll(/from '(gatehouse[\w-]*)'/g)].map(([, one]) => one),
  );
  assert.deepEqual([...new Set(imported)], [name]);
});

test('a production install is one package, and that package needs no other', () => {
  const manifest: { dependencies: object } = JSON.parse(
    readFileSync(join(root, 'package.json'), 'utf8'),
  );
  assert.deepEqual(Object.keys(manifest.dependencies), ['postgres']);
  const lock: {
    packages: Record<
      string,
      {
        dependencies?: object;
        dev?: boolean;
        optional?: boolean;
        link?: boolean;
        resolved?: string;
      }
    >;
  } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  const installed = Object.entries(lock.packages).filter(
    ([name, one]) => name !== '' && !one.dev && !one.optional && !one.link,
  );
  assert.deepEqual(
    installed.map(([name]) => name),
    ['node_modules/postgres'],
  );
  assert.equal(lock.packages['node_modules/postgres']?.dependencies, undefined);
  assert.deepEqual(
    Object.values(lock.packages).filter((one) => one.resolved !== undefined && !one.link),
    [],
    'the lock file names no download address',
  );
});

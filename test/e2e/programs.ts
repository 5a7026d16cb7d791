/** Starts programs for a test, on free ports. They cannot outlive it. */
import {
  accessSync,
  chmodSync,
  chownSync,
  closeSync,
  constants,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
} from 'node:fs';
import { once } from 'node:events';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { unprivilegedUser } from '../../scripts/binaries.ts';
import { type Supervised, supervise } from '../../scripts/supervise.ts';
import { makeTemporary } from '../../scripts/temporary.ts';
import type { Owner } from '../support/owner.ts';
import { freePorts } from '../support/ports.ts';

export interface Program {
  readonly name: string;
  /** Runs it as an ordinary user even if this process is root. */
  readonly unprivileged: boolean;
  /** Writes the program's files into its directory. @returns the command and its environment */
  prepare(
    directory: string,
    port: number,
  ): Readonly<{ command: readonly [string, ...string[]]; env?: Readonly<Record<string, string>> }>;
  /** Whether it is ready. Called once its port is open. */
  isReady?(port: number): Promise<boolean>;
}

/**
 * Also looks in directories for servers, which are not on every PATH.
 * @param name of a program, or an absolute path
 */
export function findProgram(name: string): string | undefined {
  if (isAbsolute(name)) return isExecutable(name) ? name : undefined;
  const others = ['/usr/sbin', '/usr/local/sbin', '/usr/local/bin', '/opt/homebrew/bin'];
  const directories = [...(process.env.PATH ?? '').split(':').filter(Boolean), ...others];
  return directories.map((directory) => join(directory, name)).find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

const ATTEMPTS = 3;
const LIMIT_MS = 30_000;

/** Starts the program in its own directory. It stops when its owner ends, or this process. */
export async function start(owner: Owner, program: Program) {
  const user = program.unprivileged ? unprivilegedUser() : undefined;
  const temporary = makeTemporary(tmpdir(), `gatehouse-${program.name}`);
  const directory = join(temporary, 'own');
  mkdirSync(directory);
  if (user) {
    // The outer directory remains ours, so that the next run can remove it after a `kill -9`.
    chmodSync(temporary, 0o711);
    chownSync(directory, user.uid, user.gid);
  }
  let run: Supervised | undefined;
  const stop = async () => {
    run?.tell('TERM');
    await run?.ended;
  };
  owner.after(async () => {
    await stop();
    // Child processes of a program, such as those of a browser, may end a moment after it.
    rmSync(temporary, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
  });
  const log = join(directory, 'log');
  for (let attempt = 1; ; attempt += 1) {
    const port = await freePort();
    const {
      command: [file, ...args],
      env,
    } = program.prepare(directory, port);
    const output = openSync(log, 'w');
    const options = {
      cwd: directory,
      env: { HOME: directory, ...env },
      output,
      ...(user ? { user } : {}),
    };
    run = supervise('TERM', file, args, options);
    closeSync(output);
    const problem = await untilReady(run, port, program);
    if (problem === undefined) return { port, stop };
    await stop();
    const text = readFileSync(log, 'utf8');
    // Another process may have taken the port.
    if (/in use|EADDRINUSE/i.test(text) && attempt < ATTEMPTS) continue;
    throw new Error(`${program.name} did not start: ${problem}\n${text}`);
  }
}

/** @returns undefined when it is ready, otherwise why it is not */
async function untilReady(
  run: Supervised,
  port: number,
  program: Program,
): Promise<string | undefined> {
  const { isReady = async () => true } = program;
  const ended = run.ended.then((status) => `it ended with status ${status}`, String);
  const deadline = performance.now() + LIMIT_MS;
  for (;;) {
    const end = await Promise.race([ended, sleep(20, undefined)]);
    if (end !== undefined) return end;
    if ((await isOpen(port)) && (await isReady(port))) return undefined;
    if (performance.now() > deadline) return 'it took too long';
  }
}

async function isOpen(port: number): Promise<boolean> {
  const socket = connect({ host: '127.0.0.1', port });
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

export const freePort = async (): Promise<number> => Number((await freePorts(1))[0]);

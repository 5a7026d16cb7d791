/** Programs that are started for a test, on ports that were free, and cannot outlive it. */
import { accessSync, chmodSync, chownSync, closeSync, constants, mkdirSync, openSync, readFileSync } from 'node:fs';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { unprivilegedUser } from './binaries.ts';
import { type Supervised, supervise } from './supervise.ts';
import { makeTemporary, removeTemporary } from './temporary.ts';

export interface Owner {
  after(fn: () => Promise<void>): void;
}

export interface Started {
  readonly port: number;
  stop(): Promise<void>;
}

export interface Plan {
  readonly name: string;
  /** As an ordinary user even where we are root: right for a program of the system, which that user may read. */
  readonly unprivileged: boolean;
  /** Writes what the program needs into its own directory. @returns the command, and what stands in its environment */
  prepare(directory: string, port: number): { readonly command: readonly [string, ...string[]]; readonly env?: Readonly<Record<string, string>> };
  /** Whether it does what it is for; asked once its port is open. */
  isReady?(port: number): Promise<boolean>;
}

/** A system's own directories for servers are not on everybody's path. */
export function findProgram(name: string): string | undefined {
  const directories = [...(process.env.PATH ?? '').split(':').filter(Boolean), '/usr/sbin', '/usr/local/sbin', '/usr/local/bin', '/opt/homebrew/bin'];
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

/** In a directory of its own. Stops when its owner ends, or this process. */
export async function start(owner: Owner, plan: Plan): Promise<Started> {
  const user = plan.unprivileged ? unprivilegedUser() : undefined;
  const temporary = makeTemporary(tmpdir(), `gatehouse-${plan.name}`);
  const directory = join(temporary, 'own');
  mkdirSync(directory);
  if (user) {
    // The outer one stays ours, so that after a `kill -9` the next run recognises and removes it.
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
    await removeAfter(temporary);
  });
  const log = join(directory, 'log');
  for (let attempt = 1; ; attempt += 1) {
    const port = await freePort();
    const { command: [program, ...words], env } = plan.prepare(directory, port);
    const output = openSync(log, 'w');
    run = supervise('TERM', program, words, { cwd: directory, env: { HOME: directory, ...env }, output, ...(user ? { user } : {}) });
    closeSync(output);
    const trouble = await untilReady(run, port, plan);
    if (trouble === undefined) return { port, stop };
    await stop();
    const text = readFileSync(log, 'utf8');
    // Somebody else may have taken the port meanwhile.
    if (!/in use|EADDRINUSE/i.test(text) || attempt === ATTEMPTS) throw new Error(`${plan.name} did not start: ${trouble}\n${text}`);
  }
}

/** What a program has started itself, such as the processes of a browser, may end a moment after it. */
async function removeAfter(path: string): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return removeTemporary(path);
    } catch (error) {
      if (attempt === ATTEMPTS) throw error;
      await sleep(1_000);
    }
  }
}

/** Undefined when it is ready, otherwise why it is not. */
async function untilReady(run: Supervised, port: number, { isReady = async () => true }: Plan): Promise<string | undefined> {
  let end: string | undefined;
  run.ended.then((status) => (end = `it ended with status ${status}`), (error: unknown) => (end = String(error)));
  const deadline = Date.now() + LIMIT_MS;
  while (end === undefined) {
    if ((await isOpen(port)) && (await isReady(port))) return undefined;
    if (Date.now() > deadline) return 'it took too long';
    await sleep(20);
  }
  return end;
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

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' && address !== null ? address.port : 0;
}

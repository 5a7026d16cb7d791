/**
 * Lanes run tests side by side: each has a compiled copy of the tree and a PostgreSQL of its own.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { cpSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { databaseUrl, withConnection } from '../postgres.ts';
import { SetupError } from '../setup-error.ts';
import { withServer } from '../test-copy.ts';
import { makeTemporary, removeTemporary } from '../temporary.ts';

export interface Lane {
  readonly copy: string;
  readonly server: string;
}

export interface Run {
  /** Not if it was stopped at its time limit. */
  readonly isGreen: boolean;
  readonly ms: number;
}

export const TEMPLATE = 'gatehouse_template';
const FAILURE = /^\s*not ok \d+(?!.*# (?:TODO|SKIP))/m;

/** How to stop what runs. */
const stops = new Set<() => void>();
let isInterrupted = false;

/** Ends what runs, so that `withLanes` ends soon and cleans up. */
export function interruptLanes(): void {
  isInterrupted = true;
  for (const stop of stops) stop();
}

/** @param stop what an interrupt calls meanwhile */
export async function interruptible<T>(stop: () => void, ended: Promise<T>): Promise<T> {
  stops.add(stop);
  if (isInterrupted) stop();
  try {
    return await ended;
  } finally {
    stops.delete(stop);
  }
}

/** @param compiled a compiled copy of the tree */
export async function withLanes<T>(
  count: number,
  compiled: string,
  work: (lanes: readonly Lane[]) => Promise<T>,
  open: readonly Lane[] = [],
): Promise<T> {
  if (open.length === count) return work(open);
  const copy = makeTemporary(tmpdir(), 'gatehouse-mutants');
  try {
    // The links of the copy are absolute.
    cpSync(compiled, copy, { recursive: true, verbatimSymlinks: true });
    return await withServer(async (server) => {
      const lane = { copy, server };
      await createTemplate(lane);
      return withLanes(count, compiled, work, [...open, lane]);
    });
  } finally {
    removeTemporary(copy);
  }
}

/** Gives each item to the next lane that is free. Ends when all lanes have ended. */
export async function inLanes<T>(
  lanes: readonly Lane[],
  items: readonly T[],
  work: (lane: Lane, item: T) => Promise<void>,
): Promise<void> {
  const queue = [...items];
  const workThrough = async (lane: Lane) => {
    try {
      for (let item = queue.shift(); item !== undefined; item = queue.shift()) {
        await work(lane, item);
        await dropDatabases(lane);
      }
    } finally {
      // If it failed, the others end, too.
      queue.length = 0;
    }
  };
  const ends = await Promise.allSettled(lanes.map(workThrough));
  for (const end of ends) if (end.status === 'rejected') throw end.reason;
}

/** Runs one test file up to its first failure. @throws SetupError after an interrupt */
export async function runTest(
  { copy, server }: Lane,
  test: string,
  limitMs: number,
  more: NodeJS.ProcessEnv = {},
): Promise<Run> {
  if (isInterrupted) throw new SetupError('Interrupted.');
  const began = performance.now();
  const env = { ...process.env, TEST_POSTGRES_URL: server, TEST_TEMPLATE: TEMPLATE, ...more };
  const file = join(copy, test.replace(/\.ts$/, '.js'));
  const child = spawn(process.execPath, ['--test-reporter=tap', file], {
    cwd: copy,
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const ended = new Promise<Run>((resolve, reject) => {
    let tail = '';
    const timer = setTimeout(() => killGroup(child), limitMs);
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      const lines = tail + text;
      tail = lines.slice(lines.lastIndexOf('\n') + 1);
      if (FAILURE.test(lines)) killGroup(child);
    });
    child.once('error', reject);
    child.once('exit', (status) => {
      clearTimeout(timer);
      // What the test has started.
      killGroup(child);
      resolve({ isGreen: status === 0, ms: performance.now() - began });
    });
  });
  const run = await interruptible(() => killGroup(child), ended);
  // It may have ended by the interrupt.
  if (isInterrupted) throw new SetupError('Interrupted.');
  return run;
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}

async function createTemplate({ copy, server }: Lane): Promise<void> {
  await withConnection(server, (sql) => sql`create database ${sql(TEMPLATE)}`);
  const env = { ...process.env, DATABASE_URL: databaseUrl(server, TEMPLATE) };
  const child = spawn(process.execPath, ['dist/cli.js', 'migrate'], { cwd: copy, env });
  const status = await new Promise((resolve) => child.once('exit', resolve));
  if (status !== 0) throw new SetupError('The template database cannot be migrated.');
}

/** Those of tests that were stopped. */
const dropDatabases = ({ server }: Lane): Promise<void> =>
  withConnection(server, async (sql) => {
    const rows = await sql<Array<{ datname: string }>>`
      select datname from pg_database where datname ~ '^test_'`;
    for (const { datname } of rows) await sql`drop database if exists ${sql(datname)} with (force)`;
  });

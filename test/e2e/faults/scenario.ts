/** One fault under load: what was acknowledged before, during and after it must hold at the end. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Running } from '../../support/process.ts';
import { type Load, startLoad } from './load/load.ts';
import { createRandom, SEED } from './random.ts';
import { type Database, startSystem, type System } from './system.ts';

interface Scenario {
  readonly t: TestContext;
  readonly system: System;
  readonly database: Database;
  readonly load: Load;
  readonly random: () => number;
}

const TIMEOUT_MS = 280_000;

/** @param cause causes the fault and ends it  @returns a test that needs no clean-up */
export function scenario(
  name: string,
  cause: (scenario: Scenario) => Promise<void>,
  {
    startDatabase,
    skip = false,
  }: { startDatabase?: (t: TestContext) => Promise<Database>; skip?: string | boolean } = {},
): void {
  test(`${name} (FAULTS_SEED=${SEED})`, { timeout: TIMEOUT_MS, skip }, async (t) => {
    const database = await startDatabase?.(t);
    const system = await startSystem(t, database);
    const load = await startLoad(t, system);
    await load.progress(100);
    const begun = Date.now();
    await cause({ t, system, database: system.database, load, random: createRandom(SEED) });
    await system.untilReady();
    await load.progress(100);
    const recovered = Date.now();
    await load.stop();
    t.diagnostic(await load.check());
    t.diagnostic(
      `fault and recovery: ${recovered - begun} ms, check: ${Date.now() - recovered} ms`,
    );
  });
}

/** Runs a fault that must make requests fail: otherwise it has tested nothing. */
export async function expectFailures(
  { load }: Scenario,
  fault: () => Promise<void>,
): Promise<void> {
  const before = load.failed();
  await fault();
  assert.ok(load.failed() > before, 'the fault made no request fail');
}

/** As a load balancer does: requests under way end, then the processes do. */
export async function stopInOrder(processes: readonly Running[]): Promise<void> {
  await sleep(1_000);
  for (const process of processes) process.signal('SIGTERM');
  const ends = await Promise.all(processes.map(({ ended }) => ended));
  assert.deepEqual(
    ends.map(({ code }) => code),
    processes.map(() => 0),
    'the processes end in order',
  );
}

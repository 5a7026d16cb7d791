/** The parts of `make bench` that compute: figures that are not checked by hand. */
import assert from 'node:assert/strict';
import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { BODIES } from '../../scripts/bench/bodies.ts';
import { compareRates, compareTotalCpu, noiseOf, resultOf } from '../../scripts/bench/compare.ts';
import { executed } from '../../scripts/bench/growth-plans.ts';
import type { Figures, Role } from '../../scripts/bench/measure.ts';
import { type Costs, type Machines, simulate } from '../../scripts/bench/model.ts';
import { svgOf } from '../../scripts/bench/plot.ts';
import { Failure } from '../../src/http/errors.ts';
import { json } from '../../src/http/json-body.ts';
import { genericSchema } from '../../src/webhook/sources.ts';

const COSTS: Costs = {
  name: 'call',
  serverStatement: 0,
  serverCall: 0,
  databaseStatement: 0,
  databaseCall: 0,
  clientCall: 0,
  commits: false,
};
const MACHINES: Machines = {
  replicas: 1,
  clientsPerReplica: 64,
  databaseCores: 4,
  sharedCores: null,
  roundTripMicros: 100,
  flushMicros: 1_000,
  statementsUnderWay: 2,
  callsPerStatement: 32,
};
const isNear = (actual: number, expected: number) =>
  assert.ok(Math.abs(actual / expected - 1) < 0.02, `${actual} is not ${expected}`);

test('a replica answers as many calls as its core has time for', () => {
  const outcome = simulate({ ...COSTS, serverCall: 100 }, MACHINES);
  isNear(outcome.rate, 10_000);
  isNear(outcome.replicas, 1);
  isNear(simulate({ ...COSTS, serverCall: 100 }, { ...MACHINES, replicas: 3 }).rate, 30_000);
});

test('calls share a statement, and PostgreSQL is the limit once its cores are', () => {
  const busy = simulate(
    { ...COSTS, databaseStatement: 320, databaseCall: 10 },
    { ...MACHINES, replicas: 10 },
  );
  assert.equal(busy.callsPerStatement, 32);
  // 640 µs for 32 calls, on four cores.
  isNear(busy.rate, 200_000);
  isNear(busy.database, 1);
  const alone = simulate(
    { ...COSTS, databaseStatement: 320, databaseCall: 10 },
    { ...MACHINES, clientsPerReplica: 1 },
  );
  assert.equal(alone.callsPerStatement, 1);
  isNear(alone.rate, 1_000_000 / 430);
});

test('a flush covers every commit that waits for it', () => {
  const machines = { ...MACHINES, replicas: 20, clientsPerReplica: 1 };
  const outcome = simulate({ ...COSTS, databaseCall: 1, commits: true }, machines);
  // No client can be faster than one flush, and 20 together are not slower than two.
  assert.ok(outcome.rate > 20 / 0.0023 && outcome.rate < 20 / 0.001, String(outcome.rate));
});

function figuresOf(role: Role, rates: readonly number[]): Figures {
  const unmeasured = {
    p50: 0,
    p99: 0,
    serverCpu: null,
    databaseCpu: null,
    clientCpu: null,
    memory: null,
  };
  return {
    name: role,
    role,
    requests: 0,
    measurements: rates.map((rate) => ({ rate, ...unmeasured })),
  };
}

test('two builds differ only outside the range of each against itself', () => {
  const compared = (ours: readonly number[], oursAgain: readonly number[]) =>
    compareRates('call', [
      figuresOf('ours', ours),
      figuresOf('ours again', oursAgain),
      figuresOf('other', [100, 100, 100]),
      figuresOf('other again', [100, 105, 95]),
    ]);
  assert.equal(resultOf(compared([120, 121, 122], [119, 121, 123])), 'differs');
  assert.equal(resultOf(compared([80, 81, 82], [79, 81, 83])), 'differs');
  const noisy = compared([150, 121, 100], [100, 121, 150]);
  assert.equal(resultOf(noisy), 'within the noise');
  const faster = compared([100, 100, 100], [80, 80, 80]);
  assert.equal(
    resultOf(faster),
    'within the noise',
    'whichever of the two processes was the faster one',
  );
  assert.equal(noiseOf(noisy), 'ours: 1.00 (0.67 to 1.50); other: 1.00 (0.95 to 1.05)');
});

test('a ratio is that of the same round, to the better baseline', () => {
  const fast = figuresOf('baseline', [100, 200, 400]);
  const { values, comparedWith } = compareRates(
    'call',
    [
      figuresOf('baseline', [1, 1, 1]),
      { ...fast, name: 'fast' },
      figuresOf('ours', [200, 200, 200]),
    ],
    { min: 1 },
  );
  assert.equal(comparedWith, 'fast');
  assert.deepEqual(values, [2, 1, 0.5]);
});

test('the CPU time of server and PostgreSQL is compared as a sum', () => {
  const withCpu = (role: Role, serverCpu: number, databaseCpu: number): Figures => {
    const figures = figuresOf(role, [1]);
    const measurements = figures.measurements.map((one) => ({ ...one, serverCpu, databaseCpu }));
    return { ...figures, measurements };
  };
  const baseline = withCpu('baseline', 60, 40);
  const [comparison] = compareTotalCpu('call', [baseline, withCpu('ours', 20, 30)]);
  assert.deepEqual(comparison?.values, [0.5]);
  assert.deepEqual(compareTotalCpu('call', [baseline, figuresOf('ours', [1])]), []);
});

test('the bodies of the benchmarks are valid events with escapes and non-ASCII text', () => {
  assert.match(BODIES.issue.text, /\\"/);
  assert.match(BODIES.issue.text, /\\\\/);
  const sizes = Object.values(BODIES).map(({ text }) => {
    assert.match(text, /[^\0-\x7f]/);
    const valid = json(genericSchema, 'required').parse(Buffer.from(text));
    assert.ok(!(valid instanceof Failure), text.slice(0, 40));
    return Math.round(Buffer.byteLength(text) / 1_024);
  });
  assert.deepEqual(sizes, [1, 7, 12, 24]);
});

test('a plot places every point within its panel', () => {
  const points = [1, 4, 16, 64, 256].map((clients) => ({
    x: clients,
    y: clients * 100,
    label: String(clients),
  }));
  const svg = svgOf({
    title: 'a < b',
    description: '',
    xAxis: { name: 'x', isLogarithmic: true },
    yAxis: { name: 'y', isLogarithmic: false },
    panels: [{ title: 'one', series: [{ name: 'line', points }] }],
  });
  assert.ok(svg.includes('a &lt; b') && !/NaN|Infinity|undefined/.test(svg));
  const [, width = ''] = /viewBox="0 0 (\d+)/.exec(svg) ?? [];
  // The first circle belongs to the legend.
  const circles = [...svg.matchAll(/cx="([\d.]+)" cy="([\d.]+)"/g)].slice(1);
  const xs = circles.map(([, x]) => Number(x));
  const ys = circles.map(([, , y]) => Number(y));
  assert.equal(circles.length, 5);
  // To the right and upwards, which is a smaller number.
  assert.deepEqual(
    xs,
    [...xs].sort((one, other) => one - other),
  );
  assert.deepEqual(
    ys,
    [...ys].sort((one, other) => other - one),
  );
  assert.ok(xs.every((x) => x >= 0 && x <= Number(width)));
});

test('plans are read from the log of PostgreSQL, without those of other statements', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-bench-test-'));
  try {
    const log = join(directory, 'log');
    const index = {
      'Node Type': 'Index Scan',
      'Index Name': 'one_pkey',
      'Relation Name': 'one',
      'Actual Loops': 1,
    };
    const unused = { 'Node Type': 'Seq Scan', 'Relation Name': 'two', 'Actual Loops': 0 };
    const entry = (query: string, pages: number) => {
      const blocks = { 'Shared Hit Blocks': pages, 'Shared Read Blocks': 1 };
      const plan = { 'Node Type': 'Limit', 'Actual Loops': 1, ...blocks, Plans: [index, unused] };
      const json = JSON.stringify({ 'Query Text': query, Plan: plan }, null, 2);
      return `2026-11-22 12:00:00 UTC [1] LOG:  duration: 0.1 ms  plan:\n${json.replace(/^/gm, '\t')}\n`;
    };
    writeFileSync(log, entry('select from one', 100));
    const request = async () =>
      appendFileSync(log, entry('select from one', 7) + entry('select from three', 9));
    const found = await executed(log, /from one/, request);
    assert.deepEqual(found, { plan: ['Index Scan one_pkey'], pages: 8 });
  } finally {
    rmSync(directory, { recursive: true });
  }
});

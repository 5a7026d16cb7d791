/** The parts of `make bench` that compute: figures that are not checked by hand. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BODIES } from '../../scripts/bench/bodies.ts';
import { compare, noiseOf, resultOf } from '../../scripts/bench/compare.ts';
import type { Figures, Role } from '../../scripts/bench/measure.ts';
import { Failure } from '../../src/platform/http/route/errors.ts';
import { json } from '../../src/platform/http/route/json-body.ts';
import { EVENT_LIMITS } from '../../src/webhook/body.ts';
import { genericSchema } from '../../src/webhook/sources.ts';

function figuresOf(role: Role, rates: readonly number[]): Figures {
  const unmeasured = {
    p50: 0,
    p99: 0,
    serverCpu: null,
    databaseCpu: null,
    memory: null,
  };
  return {
    name: role,
    role,
    requests: 0,
    measurements: rates.map((rate) => ({ rate, ...unmeasured })),
  };
}

function compareRates(figures: readonly Figures[], target = {}) {
  const [comparison] = compare('call', 'rate', figures, target);
  assert.ok(comparison);
  return comparison;
}

test('two builds differ only outside the range of each against itself', () => {
  const compared = (ours: readonly number[], oursAgain: readonly number[]) =>
    compareRates([
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
  const [comparison] = compare('call', 'CPU', [baseline, withCpu('ours', 20, 30)]);
  assert.deepEqual(comparison?.values, [0.5]);
  assert.deepEqual(compare('call', 'CPU', [baseline, figuresOf('ours', [1])]), []);
});

test('the bodies of the benchmarks are valid events with escapes and non-ASCII text', () => {
  assert.match(BODIES.issue.text, /\\"/);
  assert.match(BODIES.issue.text, /\\\\/);
  const sizes = Object.values(BODIES).map(({ text }) => {
    assert.match(text, /[^\0-\x7f]/);
    const valid = json(genericSchema, 'required', EVENT_LIMITS).parse(Buffer.from(text));
    assert.ok(!(valid instanceof Failure), text.slice(0, 40));
    return Math.round(Buffer.byteLength(text) / 1_024);
  });
  assert.deepEqual(sizes, [1, 7, 12, 24]);
});

/** The Prometheus text format, version 0.0.4. */
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { test } from 'node:test';
import { addProcessMetrics, createMetrics } from '../../../src/platform/runtime/metrics.ts';

test('a counter counts each series separately, by any number, from several declarations', () => {
  const metrics = createMetrics();
  const declare = () => metrics.counter('a_total', 'Requests.', ['service', 'status']);
  const count = declare();
  for (const by of [500, 0, 7]) count(['identity', '200'], by);
  // Declared again, as by another service: the same family.
  declare()(['identity', '200']);
  count(['identity', '401'], 0);
  metrics.counter('b_total', 'None yet.', []);
  assert.equal(
    metrics.text(),
    '# HELP a_total Requests.\n# TYPE a_total counter\n' +
      'a_total{service="identity",status="200"} 508\n' +
      'a_total{service="identity",status="401"} 0\n',
  );
});

test('quotes, backslashes and line breaks in a label value are escaped', () => {
  const metrics = createMetrics();
  const count = metrics.counter('a_total', 'A.', ['route']);
  for (const route of ['a"b', 'a\\b', 'a\nb', '\\n', '", other="x', '{}', '', 'é €'])
    count([route]);
  const written = metrics.text().split('\n').slice(2, -1);
  assert.deepEqual(written, [
    ...['a_total{route="a\\"b"} 1', 'a_total{route="a\\\\b"} 1', 'a_total{route="a\\nb"} 1'],
    ...['a_total{route="\\\\n"} 1', 'a_total{route="\\", other=\\"x"} 1', 'a_total{route="{}"} 1'],
    ...['a_total{route=""} 1', 'a_total{route="é €"} 1'],
  ]);
});

test('histogram buckets are cumulative and include their bound; +Inf holds all', () => {
  const metrics = createMetrics();
  const observe = metrics.histogram('a_seconds', 'Durations.', ['service'], [0.125, 0.5, 10]);
  for (const seconds of [0, 0.125, 0.25, 0.5, 10, 16]) observe(['x'], seconds);
  assert.equal(
    metrics.text(),
    '# HELP a_seconds Durations.\n# TYPE a_seconds histogram\n' +
      'a_seconds_bucket{service="x",le="0.125"} 2\na_seconds_bucket{service="x",le="0.5"} 4\n' +
      'a_seconds_bucket{service="x",le="10"} 5\na_seconds_bucket{service="x",le="+Inf"} 6\n' +
      'a_seconds_sum{service="x"} 26.875\na_seconds_count{service="x"} 6\n',
  );
});

test('a gauge is read at each scrape; one name with several labels is one family', () => {
  const metrics = createMetrics();
  let pending = 1;
  for (const connection of ['read', 'write'])
    metrics.gauge('a', 'Pending.', () => pending, { connection });
  pending = 7;
  assert.equal(
    metrics.text(),
    '# HELP a Pending.\n# TYPE a gauge\na{connection="read"} 7\na{connection="write"} 7\n',
  );
});

/** What is read of the process, by name. */
function readProcess() {
  const metrics = createMetrics();
  addProcessMetrics(metrics);
  return new Map(metrics.readings().map(({ name, value }) => [name, value]));
}

test('memory, event loop delay and files of the process are gauges', () => {
  const values = readProcess();
  for (const [name, least] of [
    ['process_resident_memory_bytes', 1e6],
    ['nodejs_heap_used_bytes', 1e6],
    ['nodejs_eventloop_delay_p99_seconds', 0],
    ['process_open_fds', 3],
    ['process_max_fds', Number(values.get('process_open_fds'))],
  ] as const)
    assert.ok(Number(values.get(name)) >= least, name);
});

test('without a free file, or without /proc, the gauges of files are NaN and the others stand', (t) => {
  const fail = () => {
    throw Object.assign(new Error('EMFILE'), { code: 'EMFILE' });
  };
  const mocks = [t.mock.method(fs, 'readdirSync', fail), t.mock.method(fs, 'readFileSync', fail)];
  syncBuiltinESMExports();
  const values = readProcess();
  for (const { mock } of mocks) mock.restore();
  syncBuiltinESMExports();
  assert.deepEqual(
    ['process_open_fds', 'process_max_fds'].map((name) => values.get(name)),
    [NaN, NaN],
  );
  assert.ok(Number(values.get('process_resident_memory_bytes')) > 1e6);
});

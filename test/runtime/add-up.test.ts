/** The numbers of several processes as one answer: read by the rules of the text format, and not by our own writing. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addUp, countersOf, createMetrics, type Metrics } from '../../src/runtime/metrics.ts';

interface Family {
  readonly type: string;
  readonly help: string;
  /** Values by series, as it is written. */
  readonly series: ReadonlyMap<string, number>;
}

/** A family is announced once, by its help and then its type, and its samples stay together; a series is there once. */
function parse(text: string): Map<string, Family> {
  assert.ok(text.endsWith('\n') && !text.includes('\n\n'));
  const families = new Map<string, Family & { series: Map<string, number> }>();
  let name = '';
  for (const line of text.slice(0, -1).split('\n')) {
    const [, keyword, subject = '', rest = ''] = /^# (HELP|TYPE) ([a-z_][a-z0-9_]*) (.+)$/.exec(line) ?? [];
    if (keyword === 'HELP') {
      assert.ok(!families.has(subject), `two families ${subject}`);
      families.set((name = subject), { type: '', help: rest, series: new Map() });
    } else if (keyword === 'TYPE') {
      const family = families.get(subject) ?? assert.fail(line);
      assert.ok(subject === name && family.type === '' && family.series.size === 0, line);
      families.set(name, { ...family, type: rest });
    } else {
      const [, sample = '', labels = '', value = ''] = /^([a-z_][a-z0-9_]*)(\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (\S+)$/.exec(line) ?? assert.fail(`no sample: ${line}`);
      const family = families.get(name) ?? assert.fail(line);
      assert.ok(sample === name || (family.type === 'histogram' && /^_(bucket|sum|count)$/.test(sample.slice(name.length))), `a stray line: ${line}`);
      assert.ok(!family.series.has(sample + labels), `twice: ${line}`);
      assert.ok(Number.isFinite(Number(value)), line);
      family.series.set(sample + labels, Number(value));
    }
  }
  return families;
}

const valuesOf = (text: string, name: string) => Object.fromEntries(parse(text).get(name)?.series ?? []);
const processOf = (work: (metrics: Metrics) => void): string => {
  const metrics = createMetrics();
  work(metrics);
  return metrics.text();
};

test('counters of one series are added up, and a series that only one process has is there, too', () => {
  const name = 'gatehouse_requests_total';
  const [one, other] = [2, 40].map((by) =>
    processOf((metrics) => {
      metrics.count(name, { service: 'identity', status: '200' }, by);
      metrics.count(name, { service: 'identity', status: String(400 + by) }, by);
    }),
  );
  assert.deepEqual(valuesOf(addUp([one ?? '', other ?? '']), name), {
    [`${name}{service="identity",status="200"}`]: 42,
    [`${name}{service="identity",status="402"}`]: 2,
    [`${name}{service="identity",status="440"}`]: 40,
  });
});

test('a histogram of several processes is the one that a single process would have kept', () => {
  const name = 'gatehouse_request_duration_seconds';
  const observed = [[0, 0.0025, 0.2], [0.0005, 11, 0.2, 0.75]];
  const single = processOf((metrics) => observed.flat().forEach((seconds) => metrics.observe(name, { service: 'secrets' }, seconds)));
  const several = observed.map((some) => processOf((metrics) => some.forEach((seconds) => metrics.observe(name, { service: 'secrets' }, seconds))));
  const [expected, found] = [valuesOf(single, name), valuesOf(addUp(several), name)];
  const sum = `${name}_sum{service="secrets"}`;
  assert.ok(Math.abs((found[sum] ?? Number.NaN) - (expected[sum] ?? 0)) < 1e-9);
  assert.deepEqual({ ...found, [sum]: 0 }, { ...expected, [sum]: 0 });
  assert.equal(found[`${name}_bucket{service="secrets",le="+Inf"}`], 7);
});

test('gauges are added up by their labels, but of the event loop’s delay the worst counts', () => {
  const texts = [3, 5, 1].map((value) =>
    processOf((metrics) => {
      for (const lane of ['read', 'write']) metrics.gauge('gatehouse_database_pending', { lane }, () => (lane === 'read' ? value : 10 * value));
      metrics.gauge('nodejs_eventloop_delay_p99_seconds', {}, () => value / 1_000);
      metrics.gauge('process_resident_memory_bytes', {}, () => value * 1_000);
    }),
  );
  const text = addUp(texts);
  assert.deepEqual(valuesOf(text, 'gatehouse_database_pending'), { 'gatehouse_database_pending{lane="read"}': 9, 'gatehouse_database_pending{lane="write"}': 90 });
  assert.deepEqual(valuesOf(text, 'nodejs_eventloop_delay_p99_seconds'), { nodejs_eventloop_delay_p99_seconds: 0.005 });
  assert.deepEqual(valuesOf(text, 'process_resident_memory_bytes'), { process_resident_memory_bytes: 9_000 });
});

test('a family is announced once with its help and type, and its samples stay together, in whatever order the processes tell theirs', () => {
  const names = ['gatehouse_requests_total', 'gatehouse_password_checks_total', 'gatehouse_rows_removed_total'];
  const texts = [names, names.toReversed(), names.slice(1)].map((order, process) =>
    processOf((metrics) => {
      for (const name of order) metrics.count(name, { table: `of ${process}` });
      metrics.observe('gatehouse_request_duration_seconds', { service: `of ${process}` }, 1);
    }),
  );
  const families = parse(addUp(texts));
  const [alone] = texts.map(parse);
  for (const [name, { help, type }] of alone ?? []) assert.deepEqual([families.get(name)?.help, families.get(name)?.type], [help, type], name);
  assert.equal(families.get('gatehouse_requests_total')?.series.size, 2);
  assert.equal(families.get('gatehouse_rows_removed_total')?.series.size, 3);
  assert.equal(families.get('gatehouse_request_duration_seconds')?.series.size, 3 * 16);
});

test('labels come through as they were, with blanks, quotes, braces and line breaks in them', () => {
  const name = 'gatehouse_requests_total';
  const odd = ['GET /api/user/{user_id}', 'a "b" 7', 'a\\b', 'a\nb', 'x 1\n# HELP y z', '} 5'];
  const texts = [1, 2].map((by) => processOf((metrics) => odd.forEach((route) => metrics.count(name, { route }, by))));
  const [alone] = texts.map((text) => Object.entries(valuesOf(text, name)));
  assert.deepEqual(Object.entries(valuesOf(addUp(texts), name)), alone?.map(([series, value]) => [series, 3 * value]));
});

test('a process that says nothing changes nothing, and of one alone its text stays as it is', () => {
  const text = processOf((metrics) => {
    metrics.count('gatehouse_rows_removed_total', { table: 'identity.audit' }, 0);
    metrics.observe('gatehouse_request_duration_seconds', { service: 'webhook' }, 0.3);
  });
  assert.equal(addUp([text]), text);
  assert.equal(addUp(['', text, '']), text);
  assert.equal(addUp([]), '');
});

test('of a process that has ended the counters and histograms count on, and its gauges do not', () => {
  const metrics = createMetrics();
  metrics.count('gatehouse_requests_total', { service: 'identity' }, 3);
  metrics.observe('gatehouse_request_duration_seconds', { service: 'identity' }, 0.5);
  metrics.gauge('gatehouse_requests_in_flight', { service: 'identity' }, () => 7);
  const left = countersOf(metrics.text());
  assert.match(left, /^gatehouse_requests_total\{service="identity"\} 3$/m);
  assert.match(left, /^gatehouse_request_duration_seconds_count\{service="identity"\} 1$/m);
  assert.doesNotMatch(left, /in_flight|process_|nodejs_/);
});

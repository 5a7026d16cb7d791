/** The Prometheus text format, version 0.0.4, parsed by its own rules. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addProcessMetrics, createMetrics } from '../../../src/platform/runtime/metrics.ts';

interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/**
 * Every line must be a comment or a sample; a family is announced once, before its samples, which
 * stay together.
 */
function parse(text: string): { samples: Sample[]; types: Map<string, string> } {
  assert.ok(text.endsWith('\n'));
  const samples: Sample[] = [];
  const types = new Map<string, string>();
  const helped = new Set<string>();
  let family = '';
  for (const line of text.slice(0, -1).split('\n')) {
    const [, keyword, subject = '', rest = ''] =
      /^# (HELP|TYPE) ([a-z_][a-z0-9_]*) (.+)$/.exec(line) ?? [];
    if (keyword === 'HELP') {
      assert.ok(!helped.has(subject), `two families ${subject}`);
      helped.add(subject);
    } else if (keyword === 'TYPE') {
      assert.match(rest, /^(counter|gauge|histogram)$/);
      family = subject;
      types.set(family, rest);
    } else {
      const [, name = '', braces, value = ''] =
        /^([a-z_][a-z0-9_]*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
      assert.ok(
        name === family ||
          (types.get(family) === 'histogram' &&
            /_(bucket|sum|count)$/.exec(name.slice(family.length))),
        `a stray line: ${line}`,
      );
      assert.ok(Number.isFinite(Number(value)), line);
      samples.push({ name, labels: parseLabels(braces ?? ''), value: Number(value) });
    }
  }
  return { samples, types };
}

function parseLabels(text: string): Record<string, string> {
  const labels: Record<string, string> = {};
  let at = 0;
  for (const found of text.matchAll(
    /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)/g,
  )) {
    assert.equal(found.index, at, `not labels: ${text}`);
    at += found[0].length;
    labels[found[1] ?? ''] = (found[2] ?? '').replace(/\\(.)/g, (_, escaped: string) =>
      escaped === 'n' ? '\n' : escaped,
    );
  }
  assert.equal(at, text.length, `not labels: ${text}`);
  return labels;
}

const of = (samples: readonly Sample[], name: string) =>
  samples.filter((sample) => sample.name === name);

test('a counter counts each series separately', () => {
  const metrics = createMetrics();
  const one = { service: 'identity', status: '200' };
  const count = metrics.counter('gatehouse_requests_total', 'Requests.', ['service', 'status']);
  for (let time = 0; time < 3; time += 1) count([one.service, one.status]);
  count([one.service, '401']);
  const { samples, types } = parse(metrics.text());
  assert.equal(types.get('gatehouse_requests_total'), 'counter');
  assert.deepEqual(
    of(samples, 'gatehouse_requests_total').map(({ labels, value }) => [labels.status, value]),
    [
      ['200', 3],
      ['401', 1],
    ],
  );
});

test('a counter can add any number, including 0, from several declarations', () => {
  const metrics = createMetrics();
  const name = 'gatehouse_rows_removed_total';
  const count = metrics.counter(name, 'Rows removed.', ['table']);
  for (const by of [500, 0, 7]) count(['identity.audit'], by);
  // Declared again, as by another service: the same family.
  metrics.counter(name, 'Rows removed.', ['table'])(['identity.audit']);
  count(['identity.sessions'], 0);
  const found = of(parse(metrics.text()).samples, name);
  assert.deepEqual(
    found.map(({ labels, value }) => [labels.table, value]),
    [
      ['identity.audit', 508],
      ['identity.sessions', 0],
    ],
  );
});

test('a label value survives quotes, backslashes, line breaks and braces', () => {
  const metrics = createMetrics();
  const odd = ['a"b', 'a\\b', 'a\nb', '\\n', 'a\\"b', '{a="b"}', '", other="x', '', 'é €'];
  const count = metrics.counter('gatehouse_requests_total', 'Requests.', ['route']);
  for (const route of odd) count([route]);
  const found = of(parse(metrics.text()).samples, 'gatehouse_requests_total');
  assert.deepEqual(
    found.map(({ labels, value }) => [labels.route, value]),
    odd.map((route) => [route, 1]),
  );
});

test('histogram buckets are cumulative and include their bound; +Inf holds all', () => {
  const metrics = createMetrics();
  const name = 'gatehouse_request_duration_seconds';
  const observed = [0, 0.001, 0.0011, 0.02, 0.3, 10, 10.001, 99];
  const observe = metrics.histogram(name, 'Durations.', ['service']);
  for (const seconds of observed) observe(['secrets'], seconds);
  const { samples, types } = parse(metrics.text());
  assert.equal(types.get(name), 'histogram');
  const buckets = of(samples, `${name}_bucket`);
  for (const { labels, value } of buckets) {
    const bound = labels.le === '+Inf' ? Infinity : Number(labels.le);
    assert.equal(value, observed.filter((seconds) => seconds <= bound).length, `le=${labels.le}`);
    assert.equal(labels.service, 'secrets');
  }
  const bounds = buckets.map(({ labels }) => Number(labels.le === '+Inf' ? Infinity : labels.le));
  assert.deepEqual(
    bounds,
    [...bounds].sort((one, other) => one - other),
  );
  assert.equal(bounds.at(-1), Infinity);
  assert.deepEqual(
    of(samples, `${name}_count`).map(({ value }) => value),
    [observed.length],
  );
  const [sum] = of(samples, `${name}_sum`);
  assert.ok(
    Math.abs((sum?.value ?? 0) - observed.reduce((total, seconds) => total + seconds)) < 1e-9,
  );
});

test('a gauge is read at each scrape; one name with several labels is one family', () => {
  const metrics = createMetrics();
  let pending = 1;
  for (const connection of ['read', 'write'])
    metrics.gauge('gatehouse_database_pending', 'Pending.', () => pending, { connection });
  pending = 7;
  const found = of(parse(metrics.text()).samples, 'gatehouse_database_pending');
  assert.deepEqual(
    found.map(({ labels, value }) => [labels.connection, value]),
    [
      ['read', 7],
      ['write', 7],
    ],
  );
});

test('memory and event loop delay of the process are gauges', () => {
  const metrics = createMetrics();
  addProcessMetrics(metrics);
  const { samples } = parse(metrics.text());
  const value = (name: string) => of(samples, name)[0]?.value ?? Number.NaN;
  assert.ok(value('process_resident_memory_bytes') > 1e6);
  assert.ok(value('nodejs_heap_used_bytes') > 1e6);
  assert.ok(value('nodejs_eventloop_delay_p99_seconds') >= 0);
});

import { readdirSync, readFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Labels, Metrics } from './metrics.ts';

/** Seconds: from a look-up by key to the slowest request that the listener allows. */
const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

type Bounds = readonly number[];
type Series = Readonly<{ add: (amount: number) => void; rows: () => string[] }>;

/** Loaded if METRICS_PORT is set. */
export function createMetrics(): Metrics {
  /** The series of each family, by its head, and in it by label values. */
  const families = new Map<string, Map<string, Series>>();
  const declare = (name: string, type: string, help: string) => {
    const head = `# HELP ${name} ${help}\n# TYPE ${name} ${type}`;
    const family = families.get(head) ?? new Map<string, Series>();
    families.set(head, family);
    return family;
  };
  const adderOf =
    (type: string, create: (name: string, rendered: string, bounds: Bounds) => Series) =>
    (name: string, help: string, labels: Labels, bounds: Bounds = BUCKETS) => {
      const all = declare(name, type, help);
      return (values: Labels, amount = 1) => {
        const key = values.join('\0');
        const series = all.get(key) ?? create(name, render(labels, values), bounds);
        all.set(key, series);
        series.add(amount);
      };
    };
  const readerOf =
    (type: string): Metrics['gauge'] =>
    (name, help, read, labels = {}) => {
      const rendered = render(Object.keys(labels), Object.values(labels));
      const full = rendered === '' ? name : `${name}{${rendered}}`;
      // A later declaration replaces the reader.
      declare(name, type, help).set(rendered, {
        add: () => {},
        rows: () => [`${full} ${read()}`],
      });
    };
  const metrics: Metrics = {
    counter: adderOf('counter', counterSeries),
    histogram: adderOf('histogram', histogramSeries),
    gauge: readerOf('gauge'),
    text: () =>
      [...families]
        .filter(([, family]) => family.size > 0)
        .flatMap(([head, family]) => [head, ...[...family.values()].flatMap(({ rows }) => rows())])
        .map((row) => `${row}\n`)
        .join(''),
  };
  addProcessMetrics(metrics.gauge, readerOf('counter'));
  return metrics;
}

function counterSeries(name: string, labels: string): Series {
  let value = 0;
  return {
    add(by) {
      value += by;
    },
    rows: () => [`${name}{${labels}} ${value}`],
  };
}

/** Buckets are cumulative: each counts all observations up to its bound. */
function histogramSeries(name: string, labels: string, bounds: Bounds): Series {
  const buckets = bounds.map((bound) => ({ bound, count: 0 }));
  let sum = 0;
  let total = 0;
  return {
    add(seconds) {
      for (const bucket of buckets) if (seconds <= bucket.bound) bucket.count += 1;
      sum += seconds;
      total += 1;
    },
    rows: () => [
      ...buckets.map(({ bound, count }) => `${name}_bucket{${labels},le="${bound}"} ${count}`),
      `${name}_bucket{${labels},le="+Inf"} ${total}`,
      `${name}_sum{${labels}} ${sum}`,
      `${name}_count{${labels}} ${total}`,
    ],
  };
}

function addProcessMetrics(gauge: Metrics['gauge'], counter: Metrics['gauge']) {
  counter('process_cpu_seconds_total', 'Processor time.', () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  });
  gauge('process_open_fds', 'Open files, sockets and pipes.', () =>
    ofLinux(() => readdirSync('/proc/self/fd').length),
  );
  gauge('process_max_fds', 'How many may be open.', () =>
    ofLinux(() => {
      const limits = readFileSync('/proc/self/limits', 'utf8');
      return Number(/^Max open files +(\d+)/m.exec(limits)?.[1]);
    }),
  );
  const delay = monitorEventLoopDelay({ resolution: 20 });
  delay.enable();
  gauge(
    'process_start_time_seconds',
    'Start of the process, in seconds since 1970.',
    () => performance.timeOrigin / 1_000,
  );
  gauge('process_resident_memory_bytes', 'Resident memory.', () => process.memoryUsage.rss());
  gauge('nodejs_heap_used_bytes', 'Heap in use.', () => process.memoryUsage().heapUsed);
  gauge('nodejs_eventloop_delay_p99_seconds', '99th percentile since the last scrape.', () => {
    const seconds = delay.count === 0 ? 0 : delay.percentile(99) / 1e9;
    delay.reset();
    return seconds;
  });
}

/** @returns NaN on other systems */
function ofLinux(read: () => number) {
  try {
    return read();
  } catch {
    return NaN;
  }
}

function render(names: Labels, values: Labels) {
  const escaped = (value = '') => value.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n');
  return names.map((name, index) => `${name}="${escaped(values[index])}"`).join(',');
}

import { readdirSync, readFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';

/** Seconds: from a look-up by key to the slowest request that the listener allows. */
const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** The names of labels, or the values of one series. */
export type Labels = readonly string[];
export type Metrics = ReturnType<typeof createMetrics>;
type Series = Readonly<{ add: (amount: number) => void; rows: () => string[] }>;
type CreateSeries = (name: string, labels: string, bounds: readonly number[]) => Series;

/**
 * A metric family is declared by the module that counts it. Declaring a name again, with the same
 * help, returns the same family.
 */
export function createMetrics() {
  /** The series of each family, by its head, and in it by label values. */
  const families = new Map<string, Map<string, Series>>();
  const readers = new Map<string, () => number>();
  const declare = (name: string, type: string, help: string) => {
    const head = `# HELP ${name} ${help}\n# TYPE ${name} ${type}`;
    const family = families.get(head) ?? new Map<string, Series>();
    families.set(head, family);
    return family;
  };
  const adderOf =
    (type: string, create: CreateSeries) =>
    (name: string, help: string, labels: Labels, bounds = BUCKETS) => {
      const all = declare(name, type, help);
      return (values: Labels, amount = 1) => {
        const key = values.join('\0');
        const known = all.get(key);
        const series = known ?? create(name, render(labels, values), bounds);
        if (!known) all.set(key, series);
        series.add(amount);
      };
    };
  const readerOf =
    (type: string) =>
    (
      name: string,
      help: string,
      read: () => number,
      labels: Readonly<Record<string, string>> = {},
    ) => {
      const rendered = render(Object.keys(labels), Object.values(labels));
      const full = rendered === '' ? name : `${name}{${rendered}}`;
      // A later declaration replaces the reader.
      readers.set(full, read);
      declare(name, type, help).set(rendered, {
        add: () => {},
        rows: () => [`${full} ${read()}`],
      });
    };
  return {
    /** @returns adds 1, or another amount, to the series with these label values */
    counter: adderOf('counter', counterSeries),
    /** The bounds of the buckets are from 1 ms to 10 s by default. @returns adds seconds */
    histogram: adderOf('histogram', histogramSeries),
    /** A value that is read at each scrape. */
    gauge: readerOf('gauge'),
    /** A counter that is read at each scrape. */
    total: readerOf('counter'),
    /** The present values of all that is read, by the names of their series. */
    readings: () => [...readers].map(([name, read]) => ({ name, value: read() })),
    /** The Prometheus text format, version 0.0.4. */
    text: () =>
      [...families]
        .filter(([, family]) => family.size > 0)
        .flatMap(([head, family]) => [head, ...[...family.values()].flatMap(({ rows }) => rows())])
        .concat('')
        .join('\n'),
  };
}

const counterSeries: CreateSeries = (name, labels) => {
  let value = 0;
  return {
    add(by) {
      value += by;
    },
    rows: () => [`${name}{${labels}} ${value}`],
  };
};

/** Buckets are cumulative: each counts all observations up to its bound. */
const histogramSeries: CreateSeries = (name, labels, bounds) => {
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
};

/** Of the process. They cost a timer, which wakes it 50 times a second. */
export function addProcessMetrics({ gauge, total }: Metrics) {
  total('process_cpu_seconds_total', 'Processor time.', () => {
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

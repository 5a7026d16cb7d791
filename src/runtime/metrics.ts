import { monitorEventLoopDelay } from 'node:perf_hooks';

/** Seconds: from a cached look-up to the slowest request the listener allows. */
const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** A metric family is declared by the module that counts it. Declaring a name again returns the same family. */
export interface Metrics {
  /** @returns adds to the series with these label values, in the order of `labels`; 1 unless `by` is given */
  counter(name: string, help: string, labels: readonly string[]): (values: readonly string[], by?: number) => void;
  /** @returns adds an observation, in seconds */
  histogram(name: string, help: string, labels: readonly string[]): (values: readonly string[], seconds: number) => void;
  /** A value that is read at each scrape. */
  gauge(name: string, help: string, labels: Readonly<Record<string, string>>, read: () => number): void;
  /** The Prometheus text format, version 0.0.4. */
  text(): string;
}

type Add = (amount: number) => void;

interface Family {
  readonly head: string;
  /** Each series' rows of the text. */
  readonly rows: Map<string, () => string[]>;
  /** Each series' update, by its label values. */
  readonly updates: Map<string, Add>;
}

export function createMetrics(): Metrics {
  const families = new Map<string, Family>();
  const family = (name: string, type: string, help: string): Family => {
    let found = families.get(name);
    if (!found) {
      found = { head: `# HELP ${name} ${help}\n# TYPE ${name} ${type}`, rows: new Map(), updates: new Map() };
      families.set(name, found);
    }
    return found;
  };
  const metrics: Metrics = {
    counter(name, help, labels) {
      const update = createUpdate(family(name, 'counter', help), labels, (rows, rendered) => {
        let value = 0;
        rows.set(rendered, () => [`${name}{${rendered}} ${value}`]);
        return (by) => (value += by);
      });
      return (values, by = 1) => update(values, by);
    },
    histogram: (name, help, labels) =>
      createUpdate(family(name, 'histogram', help), labels, (rows, rendered) => {
        const one = { buckets: BUCKETS.map(() => 0), sum: 0, count: 0 };
        rows.set(rendered, () => histogramRows(name, rendered, one));
        return (seconds) => {
          const index = BUCKETS.findIndex((bound) => seconds <= bound);
          if (index >= 0) one.buckets[index] = (one.buckets[index] ?? 0) + 1;
          one.sum += seconds;
          one.count += 1;
        };
      }),
    gauge(name, help, labels, read) {
      const rendered = render(Object.keys(labels), Object.values(labels));
      family(name, 'gauge', help).rows.set(rendered, () => [`${name}${rendered === '' ? '' : `{${rendered}}`} ${read()}`]);
    },
    text: () =>
      [...families.values()]
        .filter(({ rows }) => rows.size > 0)
        .map(({ head, rows }) => `${head}\n${[...rows.values()].flatMap((read) => read()).join('\n')}\n`)
        .join(''),
  };
  addProcessGauges(metrics);
  return metrics;
}

/** Finds a series by its label values, and creates it at its first use. */
function createUpdate({ rows, updates }: Family, labels: readonly string[], create: (rows: Family['rows'], rendered: string) => Add) {
  return (values: readonly string[], amount: number) => {
    const key = values.join('\0');
    let update = updates.get(key);
    if (!update) updates.set(key, (update = create(rows, render(labels, values))));
    update(amount);
  };
}

function histogramRows(name: string, labels: string, { buckets, sum, count }: { buckets: number[]; sum: number; count: number }): string[] {
  let below = 0;
  const rows = BUCKETS.map((bound, index) => `${name}_bucket{${labels},le="${bound}"} ${(below += buckets[index] ?? 0)}`);
  return [...rows, `${name}_bucket{${labels},le="+Inf"} ${count}`, `${name}_sum{${labels}} ${sum}`, `${name}_count{${labels}} ${count}`];
}

function addProcessGauges({ gauge }: Metrics): void {
  const delay = monitorEventLoopDelay({ resolution: 20 });
  delay.enable();
  gauge('process_resident_memory_bytes', 'Resident memory.', {}, () => process.memoryUsage.rss());
  gauge('nodejs_heap_used_bytes', 'Heap in use.', {}, () => process.memoryUsage().heapUsed);
  gauge('nodejs_eventloop_delay_p99_seconds', '99th percentile of the event loop delay since the last scrape.', {}, () => {
    const seconds = delay.count === 0 ? 0 : delay.percentile(99) / 1e9;
    delay.reset();
    return seconds;
  });
}

function render(names: readonly string[], values: readonly string[]): string {
  const escaped = (value = '') => value.replace(/[\\"\n]/g, (found) => (found === '\n' ? '\\n' : `\\${found}`));
  return names.map((name, index) => `${name}="${escaped(values[index])}"`).join(',');
}

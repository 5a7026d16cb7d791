import { monitorEventLoopDelay } from 'node:perf_hooks';

type Labels = Readonly<Record<string, string>>;
/** Seconds: from a cached look-up to the slowest request the listener lets live. */
const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

export interface Metrics {
  /** Adds to a counter: one, unless `by` says otherwise. */
  count(name: string, labels: Labels, by?: number): void;
  /** Adds an observation, in seconds, to a histogram. */
  observe(name: string, labels: Labels, seconds: number): void;
  /** A value that is read when somebody asks. */
  gauge(name: string, labels: Labels, read: () => number): void;
  /** The Prometheus text format, version 0.0.4. */
  text(): string;
}

const HELP: Readonly<Record<string, string>> = {
  gatehouse_requests_total: 'Requests answered, by service, route pattern and status.',
  gatehouse_requests_refused_total: 'Requests answered with an error, by service, route pattern and reason: the code in the answer.',
  gatehouse_request_duration_seconds: 'From the last byte of the head to the end of the reply.',
  gatehouse_requests_in_flight: 'Requests being worked on.',
  gatehouse_database_pending: 'Statements and transactions under way or waiting, by lane.',
  gatehouse_password_hashes_running: 'Password hashes being computed.',
  gatehouse_password_hashes_waiting: 'Password hashes waiting for a place.',
  gatehouse_password_checks_total: 'Passwords checked at login and before a change, by outcome: right, wrong, throttled.',
  gatehouse_secret_events_total: 'Secrets stored, read, deleted and expired, and reads that failed, by event.',
  gatehouse_secrets_stored: 'Secrets that can still be read, by the key id of their server secret, as counted within the last minute.',
  gatehouse_events_received_total: 'Webhook events accepted, by source and whether they came before.',
  gatehouse_events_waiting: 'Webhook events that wait for their delivery, or are being delivered.',
  gatehouse_events_waiting_bytes: 'Bytes of webhook events that wait for their commit.',
  gatehouse_events_oldest_seconds: 'Age of the oldest of them.',
  gatehouse_events_dead: 'Webhook events whose delivery has failed for good.',
  gatehouse_delivery_attempts_total: 'Attempts to deliver a webhook event, by outcome.',
  gatehouse_rows_removed_total: 'Rows that housekeeping has removed, by table.',
  process_resident_memory_bytes: 'Resident memory.',
  nodejs_heap_used_bytes: 'Heap in use.',
  nodejs_eventloop_delay_p99_seconds: '99th percentile of the event loop delay since the last reading.',
};

export function createMetrics(): Metrics {
  const counters = new Map<string, Map<string, number>>();
  const histograms = new Map<string, Map<string, { buckets: number[]; sum: number; count: number }>>();
  const gauges = new Map<string, Map<string, () => number>>();
  const gauge: Metrics['gauge'] = (name, labels, read) => void slot(gauges, name).set(render(labels), read);
  addProcessGauges(gauge);
  return {
    count(name, labels, by = 1) {
      const series = slot(counters, name);
      const key = render(labels);
      series.set(key, (series.get(key) ?? 0) + by);
    },
    observe(name, labels, seconds) {
      const series = slot(histograms, name);
      const key = render(labels);
      let one = series.get(key);
      if (!one) series.set(key, (one = { buckets: BUCKETS.map(() => 0), sum: 0, count: 0 }));
      const index = BUCKETS.findIndex((bound) => seconds <= bound);
      if (index >= 0) one.buckets[index] = (one.buckets[index] ?? 0) + 1;
      one.sum += seconds;
      one.count += 1;
    },
    gauge,
    text() {
      const lines: string[] = [];
      for (const [name, series] of counters) {
        lines.push(head(name, 'counter'));
        for (const [labels, value] of series) lines.push(`${name}{${labels}} ${value}`);
      }
      for (const [name, series] of histograms) {
        lines.push(head(name, 'histogram'));
        for (const [labels, one] of series) {
          let below = 0;
          BUCKETS.forEach((bound, index) => {
            below += one.buckets[index] ?? 0;
            lines.push(`${name}_bucket{${labels},le="${bound}"} ${below}`);
          });
          lines.push(`${name}_bucket{${labels},le="+Inf"} ${one.count}`);
          lines.push(`${name}_sum{${labels}} ${one.sum}`, `${name}_count{${labels}} ${one.count}`);
        }
      }
      for (const [name, series] of gauges) {
        lines.push(head(name, 'gauge'));
        for (const [labels, read] of series) lines.push(`${name}${labels === '' ? '' : `{${labels}}`} ${read()}`);
      }
      return `${lines.join('\n')}\n`;
    },
  };
}

/** Of these the worst of several processes counts, and not their sum. */
const WORST = /^nodejs_eventloop_delay_p99_seconds/;

/** Without the gauges: what a process that has ended leaves behind. */
export const countersOf = (text: string): string => text.split(/^(?=# HELP)/m).filter((family) => !/^# TYPE \S+ gauge$/m.test(family)).join('');

/** One text of several processes' texts. */
export function addUp(texts: readonly string[]): string {
  const families = new Map<string, Map<string, number>>();
  for (const text of texts) {
    let family: Map<string, number> | undefined;
    let help = '';
    for (const line of text.split('\n')) {
      if (line.startsWith('# HELP')) help = line;
      else if (line.startsWith('#')) family = slot(families, `${help}\n${line}`);
      else if (line !== '') {
        const end = line.lastIndexOf(' ');
        const [series, value, before = 0] = [line.slice(0, end), Number(line.slice(end + 1)), family?.get(line.slice(0, end))];
        family?.set(series, WORST.test(series) ? Math.max(before, value) : before + value);
      }
    }
  }
  return [...families].map(([head, series]) => `${head}\n${[...series].map(([name, value]) => `${name} ${value}\n`).join('')}`).join('');
}

function addProcessGauges(gauge: Metrics['gauge']): void {
  const delay = monitorEventLoopDelay({ resolution: 20 });
  delay.enable();
  gauge('process_resident_memory_bytes', {}, () => process.memoryUsage.rss());
  gauge('nodejs_heap_used_bytes', {}, () => process.memoryUsage().heapUsed);
  gauge('nodejs_eventloop_delay_p99_seconds', {}, () => {
    const seconds = delay.count === 0 ? 0 : delay.percentile(99) / 1e9;
    delay.reset();
    return seconds;
  });
}

function slot<T>(all: Map<string, Map<string, T>>, name: string): Map<string, T> {
  let series = all.get(name);
  if (!series) all.set(name, (series = new Map()));
  return series;
}

/** Of the label sets that are used again and again, as those of a route are. */
const rendered = new WeakMap<Labels, string>();

const head = (name: string, type: string) => `# HELP ${name} ${HELP[name] ?? name}\n# TYPE ${name} ${type}`;

function render(labels: Labels): string {
  let text = rendered.get(labels);
  if (text === undefined) {
    text = Object.entries(labels)
      .map(([name, value]) => `${name}="${value.replace(/[\\"\n]/g, (found) => (found === '\n' ? '\\n' : `\\${found}`))}"`)
      .join(',');
    rendered.set(labels, text);
  }
  return text;
}

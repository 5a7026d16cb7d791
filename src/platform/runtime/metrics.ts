/** The names of labels, or the values of one series. */
export type Labels = readonly string[];

/**
 * A metric family is declared by the module that counts it. Declaring a name again, with the same
 * help, returns the same family.
 */
export interface Metrics {
  /** @returns adds 1, or `by`, to the series with these label values, in the order of `labels` */
  counter(name: string, help: string, labels: Labels): (values: Labels, by?: number) => void;
  /** @param bounds of the buckets; from 1 ms to 10 s by default  @returns adds seconds */
  histogram(
    name: string,
    help: string,
    labels: Labels,
    bounds?: readonly number[],
  ): (values: Labels, seconds: number) => void;
  /** A value that is read at each scrape. */
  gauge(
    name: string,
    help: string,
    read: () => number,
    labels?: Readonly<Record<string, string>>,
  ): void;
  /** The Prometheus text format, version 0.0.4. */
  text(): string;
}

/** Counts nothing: for a process without METRICS_PORT. */
const nothing = () => {};
export const noMetrics: Metrics = {
  counter: () => nothing,
  histogram: () => nothing,
  gauge: nothing,
  text: () => '',
};

/**
 * The plots of `docs/benchmarks.md`: rate by the number of clients, and 99th percentile by the
 * rate.
 */
import type { Curve } from './compare.ts';
import { type Axis, type Panel, type Plot, svgOf } from './plot.ts';

type Point = Curve['lines'][number]['points'][number];

interface Figure {
  /** Below docs/. */
  readonly file: string;
  readonly heading: string;
  readonly caveat: string;
  readonly xAxis: Axis;
  readonly yAxis: Axis;
  place(point: Point): { x: number; y: number; label: string };
}

const FIGURES: readonly Figure[] = [
  {
    file: 'benchmarks-rate.svg',
    heading: 'Rate by the number of clients',
    xAxis: { name: 'clients', isLogarithmic: true },
    yAxis: { name: 'requests/s', isLogarithmic: false },
    caveat:
      'Each client waits for its reply before it sends again, all on one machine with two cores for the server,' +
      ' PostgreSQL and the load. It does not say what more cores, or clients on other machines, would reach.',
    place: ({ clients, rate }) => ({ x: clients, y: rate, label: '' }),
  },
  {
    file: 'benchmarks-p99.svg',
    heading: '99th percentile of the latency by the rate',
    xAxis: { name: 'requests/s', isLogarithmic: false },
    yAxis: { name: 'p99, ms', isLogarithmic: true },
    caveat:
      'The number beside a point is the number of clients. The rate is what these clients reach, not a rate that is' +
      ' given: it does not say how long the queue becomes when more requests arrive than are answered.',
    place: ({ clients, rate, p99 }) => ({ x: rate, y: p99, label: String(clients) }),
  },
];

function plotOf(figure: Figure, curves: readonly Curve[]): Plot {
  const panels = curves.map(({ name, lines }): Panel => {
    // Gatehouse first.
    const sorted = [...lines].sort(
      (one, other) => Number(other.role === 'ours') - Number(one.role === 'ours'),
    );
    return {
      title: name,
      series: sorted.map((line) => ({ name: line.name, points: line.points.map(figure.place) })),
    };
  });
  const description = panels.map(({ title, series }) => {
    const text = series.map(
      ({ name, points }) => `${name}: ${points.map(({ x, y }) => `${x} → ${y}`).join(', ')}`,
    );
    return `${title}. ${text.join('; ')}.`;
  });
  const { heading: title, xAxis, yAxis } = figure;
  return { title, description: description.join(' '), xAxis, yAxis, panels };
}

/** @returns the files below docs/ with their contents */
export const plotsOf = (curves: readonly Curve[]): Array<readonly [file: string, svg: string]> =>
  curves.length === 0 ? [] : FIGURES.map((figure) => [figure.file, svgOf(plotOf(figure, curves))]);

export function sectionsOf(curves: readonly Curve[]): string[] {
  if (curves.length === 0) return [];
  return FIGURES.map(
    ({ file, heading, caveat }) => `## ${heading}\n\n![${heading}](${file})\n\n${caveat}\n`,
  );
}

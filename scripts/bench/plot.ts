/**
 * Plots as SVG: small panels with shared series. Colors and grey are readable on a light and on a
 * dark background.
 */

/** One line. `label` is written beside a point. */
export interface Series {
  readonly name: string;
  readonly points: ReadonlyArray<{
    readonly x: number;
    readonly y: number;
    readonly label: string;
  }>;
}

export interface Panel {
  readonly title: string;
  readonly series: readonly Series[];
}

export interface Plot {
  readonly title: string;
  readonly description: string;
  readonly xAxis: Axis;
  readonly yAxis: Axis;
  readonly panels: readonly Panel[];
}

export interface Axis {
  readonly name: string;
  readonly isLogarithmic: boolean;
}

// Told apart by the dashes, too.
const STYLES = [
  { color: '#3b82f6', dash: '' },
  { color: '#d97706', dash: '6 3' },
  { color: '#0d9488', dash: '2 3' },
] as const;
const GREY = '#808080';
const WIDTH = 400;
const HEIGHT = 260;
const MARGIN = { left: 62, right: 26, top: 30, bottom: 44 };
const TOP = 40;
const COLUMNS = 2;

const escaped = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
const number = (value: number) => String(Number(value.toFixed(1)));

/** Round values that cover all of them: 1, 2 or 5 times a power of ten, or powers of ten. */
function ticksOf(values: readonly number[], { isLogarithmic }: Axis): number[] {
  const max = Math.max(...values, 1e-9);
  if (isLogarithmic) {
    const first = Math.floor(Math.log10(Math.min(...values)));
    const last = Math.ceil(Math.log10(max));
    return Array.from(
      { length: Math.max(2, last - first + 1) },
      (_, index) => 10 ** (first + index),
    );
  }
  const rough = max / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  return Array.from({ length: Math.ceil(max / step) + 1 }, (_, index) => index * step);
}

function scaleOf(ticks: readonly number[], { isLogarithmic }: Axis, from: number, to: number) {
  const position = (value: number) => (isLogarithmic ? Math.log10(value) : value);
  const low = position(ticks[0] ?? 0);
  const high = position(ticks.at(-1) ?? 1);
  return (value: number) => from + ((position(value) - low) / (high - low)) * (to - from);
}

const text = (x: number, y: number, value: string, attributes = '') =>
  `<text x="${number(x)}" y="${number(y)}" ${attributes}>${escaped(value)}</text>`;

function panelOf({ title, series }: Panel, index: number, { xAxis, yAxis }: Plot): string {
  const points = series.flatMap((one) => one.points);
  const xValues = [...new Set(points.map(({ x }) => x))];
  // A logarithmic x axis shows the measured values themselves.
  const xTicks = xAxis.isLogarithmic
    ? xValues.sort((one, other) => one - other)
    : ticksOf(xValues, xAxis);
  const yTicks = ticksOf(
    points.map(({ y }) => y),
    yAxis,
  );
  const left = MARGIN.left;
  const right = WIDTH - MARGIN.right;
  const bottom = HEIGHT - MARGIN.bottom;
  const x = scaleOf(xTicks, xAxis, left, right);
  const y = scaleOf(yTicks, yAxis, bottom, MARGIN.top);
  const shown = (value: number) => value.toLocaleString('en-US');
  const lines = [
    text(left, 16, title, 'font-weight="bold"'),
    ...yTicks.flatMap((tick) => [
      `<path d="M${left} ${number(y(tick))}H${right}" stroke="${GREY}" stroke-opacity="0.3"/>`,
      text(left - 6, y(tick) + 4, shown(tick), 'text-anchor="end"'),
    ]),
    ...xTicks.map((tick) => text(x(tick), bottom + 16, shown(tick), 'text-anchor="middle"')),
    text((left + right) / 2, bottom + 34, xAxis.name, 'text-anchor="middle"'),
    text(
      -(MARGIN.top + bottom) / 2,
      12,
      yAxis.name,
      'text-anchor="middle" transform="rotate(-90)"',
    ),
    ...series.map((one, style) => lineOf(one, style, x, y)),
  ];
  const column = index % COLUMNS;
  const row = Math.floor(index / COLUMNS);
  return `<g transform="translate(${column * WIDTH} ${TOP + row * HEIGHT})">\n${lines.join('\n')}\n</g>`;
}

type Scale = (value: number) => number;

function lineOf({ points }: Series, style: number, x: Scale, y: Scale): string {
  const { color, dash } = STYLES[style % STYLES.length] ?? STYLES[0];
  const path = points.map(
    (point, index) => `${index === 0 ? 'M' : 'L'}${number(x(point.x))} ${number(y(point.y))}`,
  );
  const marks = points.map((point) => {
    const at = `cx="${number(x(point.x))}" cy="${number(y(point.y))}"`;
    // Labels only on the first line: on all of them they would cover each other.
    const label =
      style === 0 ? text(x(point.x) + 5, y(point.y) - 6, point.label, 'font-size="10"') : '';
    return `<circle ${at} r="3" fill="${color}"/>${label}`;
  });
  const stroke = `fill="none" stroke="${color}" stroke-width="2" stroke-dasharray="${dash}"`;
  return `<path d="${path.join('')}" ${stroke}/>${marks.join('')}`;
}

export function svgOf(plot: Plot): string {
  const rows = Math.ceil(plot.panels.length / COLUMNS);
  const width = WIDTH * Math.min(COLUMNS, plot.panels.length);
  const height = TOP + rows * HEIGHT;
  const names = plot.panels[0]?.series.map(({ name }) => name) ?? [];
  const legend = names.map((name, index) => {
    const { color, dash } = STYLES[index % STYLES.length] ?? STYLES[0];
    const x = MARGIN.left + index * 200;
    const line = `<path d="M${x} 16h28" stroke="${color}" stroke-width="2" stroke-dasharray="${dash}"/>`;
    return `${line}<circle cx="${x + 14}" cy="16" r="3" fill="${color}"/>${text(x + 34, 20, name)}`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}"
    width="${width}" height="${height}"
  role="img" font-family="system-ui, sans-serif" font-size="11" fill="${GREY}">
<title>${escaped(plot.title)}</title>
<desc>${escaped(plot.description)}</desc>
${legend.join('\n')}
${plot.panels.map((panel, index) => panelOf(panel, index, plot)).join('\n')}
</svg>
`;
}

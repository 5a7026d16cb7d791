/** What is told of a run: on the terminal after each question, and in BENCHMARKS.md at the end. */
import { cpus, release, totalmem, type } from 'node:os';
import { boundOf, cellsOf, COLUMNS, isMet, type Finding, type Report } from './compare.ts';
import { generator } from './load.ts';
import { spread } from './service.ts';

const verdictOf = (finding: Finding) => (finding.values.length === 0 ? 'not measured' : isMet(finding) ? 'yes' : 'no');

export function textOf({ findings, figures, remarks = [] }: Report): string {
  const ratios = findings.map((finding) => `${finding.question}, gatehouse against ${finding.against}: ${spread(finding.values)} ${finding.unit}; ${boundOf(finding)}: ${verdictOf(finding)}`);
  const absolute = figures.flatMap(([heading, rows]) => ['', ...aligned([[heading, ...COLUMNS.slice(1)], ...rows.map(cellsOf)])]);
  return [...ratios, ...absolute, ...(absolute.length > 0 && remarks.length > 0 ? [''] : []), ...remarks].join('\n').trim();
}

function aligned(rows: ReadonlyArray<readonly string[]>): string[] {
  const widthOf = (column: number) => Math.max(...rows.map((row) => row[column]?.length ?? 0));
  return rows.map((row) => row.map((cell, column) => cell.padEnd(widthOf(column))).join('   ').trimEnd());
}

export interface Run {
  readonly command: string;
  readonly postgresVersion: string;
  readonly rounds: number;
  readonly seconds: number;
}

export function headOf({ postgresVersion, rounds, seconds }: Run): string[] {
  const processors = cpus();
  return [
    `${processors[0]?.model.trim() ?? 'unknown processor'}, ${processors.length} processors, ${(totalmem() / 2 ** 30).toFixed(1)} GiB of memory, ${type()} ${release()} ${process.arch}`,
    `Node ${process.version}, PostgreSQL ${postgresVersion} with durable settings`,
    `load by ${generator}, on the same machine`,
    `${rounds} rounds in turn, each turn ${seconds} s`,
  ];
}

const table = (rows: ReadonlyArray<readonly string[]>): string =>
  rows.map((row, index) => `| ${row.join(' | ')} |\n${index === 0 ? `|${' --- |'.repeat(row.length)}\n` : ''}`).join('');

export function documentOf(run: Run, reports: readonly Report[]): string {
  const findings = reports.flatMap((report) => report.findings);
  const figures = reports.flatMap((report) => report.figures);
  const remarks = reports.flatMap((report) => report.remarks ?? []);
  return `# Benchmarks

Written by \`${run.command}\` on ${new Date().toISOString().slice(0, 10)}; do not edit.

${[...headOf(run), 'each figure: median (least to most) of the rounds'].map((line) => `- ${line}`).join('\n')}

${table([
    ['question', 'against', 'median (least to most)', 'target', 'met?'],
    ...findings.map((finding) => [finding.question, finding.against, `${spread(finding.values)} ${finding.unit}`, boundOf(finding), verdictOf(finding)]),
  ])}
## Absolute figures

They are this machine's, and of this hour.

${figures.map(([heading, rows]) => `### ${heading[0]?.toUpperCase() ?? ''}${heading.slice(1)}\n\n${table([COLUMNS, ...rows.map(cellsOf)])}`).join('\n')}
### Others

${remarks.map((remark) => `- ${remark}`).join('\n')}

## How to read this

- **Ratios count.** Everything that is compared runs in the same run, on the same PostgreSQL, taking turns, and whoever begins a round begins the next one last. A ratio is formed within each round. Absolute figures change with the machine and with whatever else it does; a ratio whose least and most lie far apart says that it was not left alone.
- **The plain form** (\`scripts/bench/plain.mjs\`) is what one would write first: bare \`node:http\` with one statement per request through \`postgres\`, the package that Gatehouse uses, too. It runs twice, with one pipelined connection and with a pool of ten, and each measure is compared with whichever of the two is the better in that measure. It validates, logs and counts nothing, and limits nobody. For secrets it does the same cryptography; for \`/livez\` bare \`node:http\` sends the same number of bytes.
- **Gatehouse** runs as it is deployed, \`dist/cli.js serve\`, with the default log level; its log goes into a pipe that is read.
- **Every answer is looked at**: its status, and that its body contains what it must. One wrong answer, or one broken connection, and there is no result. Every event that was answered 200 is counted in the database afterwards. A target that is missed fails nothing; it is told.
- **Processor time** is user and system time of the server, and of PostgreSQL with all its processes, divided by the answers. Where the load generator shares the processors it takes its part of the rate, and none of these. **Memory** is the most resident memory that was seen during a turn.
- \`wrk\` corrects its latencies for coordinated omission; our own generator, which takes its place where it is missing (or with \`LOAD=own\`), does not; and it needs as much of a processor as \`/livez\` does, so that that ratio comes out nearer to 1 with it.

Run it again with \`make bench\`; \`make bench ARGS=--quick\` takes less than two minutes and leaves this file alone (but for \`--write\`), \`ARGS=--long\` adds the rate after 2,000,000 requests, \`ARGS="bearer livez"\` asks some questions only. Three more questions take their own preparations and have their own targets: \`make bench-sessions\` (bearer check and session list at 10,000 and 1,000,000 sessions), \`make bench-drain\` (delivery of 10,000 waiting events beside 1,000,000 done ones) and \`make bench-flood\` (what a flood of wrong passwords does to others).
`;
}

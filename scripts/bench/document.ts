/**
 * A report as Markdown, for the terminal and for docs/benchmarks.md. There, each part has a block
 * between two comments, and the text around the blocks is written by hand.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { cpus, release, totalmem, type } from 'node:os';
import { join } from 'node:path';
import { root } from './builds.ts';
import { noiseOf, type Report, resultOf, type Row, targetOf, valuesOf } from './compare.ts';
import { generator } from './load.ts';

const COMPARED: Row = [
  'benchmark',
  'compared with',
  'median (min to max)',
  'the same build against itself',
  'target',
  'met?',
];

export function markdownOf({ comparisons, tables }: Report): string {
  const compared = comparisons.map((one): Row => [
    one.name,
    one.comparedWith,
    valuesOf(one),
    noiseOf(one),
    targetOf(one),
    resultOf(one),
  ]);
  const sections = tables.flatMap(({ heading, rows, caveat }, at) => [
    `### ${capitalized(heading)}`,
    table(rows),
    // Once for tables that share it.
    tables[at + 1]?.caveat === caveat ? '' : caveat,
  ]);
  const first = compared.length === 0 ? '' : table([COMPARED, ...compared]);
  return [first, ...sections].filter((text) => text !== '').join('\n\n');
}

const capitalized = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1);

/** The first row is the head. */
function table(rows: readonly Row[]): string {
  if (rows.length === 0) return '';
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  const lineOf = (row: Row) =>
    `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`;
  const [head = '', ...lines] = rows.map(lineOf);
  const rule = `| ${widths.map((width) => '-'.repeat(Math.max(3, width))).join(' | ')} |`;
  return [head, rule, ...lines].join('\n');
}

export interface Run {
  readonly commit: string;
  readonly postgresVersion: string;
  readonly rounds: number;
  readonly seconds: number;
}

/** Figures depend on all of this. */
export function conditionsOf({ commit, postgresVersion, rounds, seconds }: Run): string {
  const processors = cpus();
  const model = processors[0]?.model.trim() ?? 'unknown processor';
  const memory = `${(totalmem() / 2 ** 30).toFixed(1)} GiB of memory`;
  const machine = `${model}, ${processors.length} processors, ${memory}, ${type()} ${release()}`;
  const programs = `Node ${process.version}, PostgreSQL ${postgresVersion}, ${generator}`;
  const pace = `${rounds} rounds in alternation, ${seconds} s per measurement`;
  const date = new Date().toISOString().slice(0, 10);
  return `Commit ${commit}, ${date}. ${machine} ${process.arch}; ${programs}; ${pace}.`;
}

/** Replaces the block of a part. */
export function writePart(name: string, text: string): void {
  const path = join(root, 'docs/benchmarks.md');
  const begin = `<!-- begin ${name} -->`;
  const end = `<!-- end ${name} -->`;
  const [before, rest] = readFileSync(path, 'utf8').split(begin);
  const after = rest?.split(end)[1];
  if (before === undefined || after === undefined)
    throw new Error(`docs/benchmarks.md has no ${begin} or no ${end}`);
  writeFileSync(path, `${before}${begin}\n${text}\n${end}${after}`);
}

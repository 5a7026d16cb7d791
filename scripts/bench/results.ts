/**
 * The results of all parts, kept in `docs/benchmarks.json`, and the document and the plots that are
 * made of them.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './builds.ts';
import type { Report } from './compare.ts';
import { plotsOf } from './curves.ts';
import { documentOf } from './document.ts';

/** A part, as last measured. A failed one keeps its former report beside the failure. */
export interface Part {
  readonly name: string;
  readonly command: string;
  readonly commit: string;
  readonly date: string;
  readonly conditions: readonly string[];
  readonly report: Report;
}

interface Measured extends Omit<Part, 'report'> {
  readonly result: Report | { readonly failure: string };
}

export const RESULTS = join(root, 'docs/benchmarks.json');

export function readResults(): Part[] {
  if (!existsSync(RESULTS)) return [];
  const parts: Part[] = JSON.parse(readFileSync(RESULTS, 'utf8'));
  return parts;
}

/**
 * Replaces one part and writes the documents. A part that failed keeps its former figures, with
 * their date.
 */
export function writeResults({ result, ...about }: Measured): void {
  if ('failure' in result) return;
  const parts = readResults();
  const index = parts.findIndex(({ name }) => name === about.name);
  parts.splice(index < 0 ? parts.length : index, index < 0 ? 0 : 1, { ...about, report: result });
  const lines = parts.map((part) => JSON.stringify(part, (_, value: unknown) => rounded(value)));
  writeFileSync(RESULTS, `[\n${lines.join(',\n')}\n]\n`);
  writeFileSync(join(root, 'docs/benchmarks.md'), documentOf(parts));
  for (const [file, svg] of plotsOf(parts.flatMap(({ report }) => report.curves ?? []))) {
    writeFileSync(join(root, 'docs', file), svg);
  }
}

/** Four significant digits are more than any figure has. */
const rounded = (value: unknown): unknown =>
  typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(4)) : value;

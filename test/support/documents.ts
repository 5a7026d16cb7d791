/** What the documents say in tables. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './process.ts';

export const PAGES = readdirSync(join(root, 'docs'))
  .filter((name) => name.endsWith('.md'))
  .map((name) => `docs/${name}`);
export const DOCUMENTS = ['README.md', 'SECURITY.md', 'CONTRIBUTING.md', 'CHANGELOG.md', ...PAGES];

export const readDocument = (name: string): string => readFileSync(join(root, name), 'utf8');

/**
 * The rows of all tables of a document whose head begins with this text, as cells without their
 * backquotes.
 */
export function rowsUnder(document: string, head: string): string[][] {
  const blocks = readDocument(document)
    .split(/\n(?!\|)/)
    .map((block) => block.trimStart());
  const tables = blocks.filter((block) => block.startsWith(`| ${head}`));
  const rows = tables
    .flatMap((table) => table.split('\n').slice(2))
    .filter((line) => line.startsWith('|'));
  const cellsOf = (line: string) =>
    line
      .slice(1, -1)
      .split('|')
      .map((cell) => cell.trim().replace(/^`([^`]*)`$/, '$1'));
  return rows.map(cellsOf);
}

/** The code blocks of the section below this heading, such as `### With Compose`. */
export function blocksUnder(document: string, heading: string): string[] {
  const [, rest = ''] = readDocument(document).split(`\n${heading}\n`);
  const [section = ''] = rest.split(/\n#+ /);
  return [...section.matchAll(/^```\w*\n([^]*?)^```$/gm)].map(([, block = '']) => block);
}

export interface DocumentedMetric {
  readonly name: string;
  readonly type: string;
  readonly labels: readonly string[];
  readonly unit: string;
}

export function documentedMetrics(): DocumentedMetric[] {
  return rowsUnder('docs/observability.md', 'metric').map(
    ([name = '', type = '', labels = '', unit = '']) => ({
      name,
      type,
      labels: [...labels.matchAll(/[a-z_]+/g)].map(String),
      unit,
    }),
  );
}

/** What the documents say in tables. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './process.ts';

export const PAGES = readdirSync(join(root, 'docs'))
  .filter((name) => name.endsWith('.md'))
  .map((name) => `docs/${name}`);
export const DOCUMENTS = ['README.md', 'SECURITY.md', 'CONTRIBUTING.md', 'CHANGELOG.md', ...PAGES];

/** The TypeScript of src/. */
export const SOURCES = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .map((name) => `src/${name}`);

export const readDocument = (name: string): string => readFileSync(join(root, name), 'utf8');

/**
 * The rows of all tables of a document whose head begins with this text, as cells without their
 * backquotes.
 */
export function rowsUnder(document: string, head: string): string[][] {
  const blocks = readDocument(document).split(/\n(?!\|)/);
  const tables = blocks
    .map((block) => block.trimStart())
    .filter((block) => block.startsWith(`| ${head}`));
  const lines = tables.flatMap((table) => table.split('\n').slice(2));
  return lines
    .filter((line) => line.startsWith('|'))
    .map((line) => line.slice(1, -1).split('|'))
    .map((cells) => cells.map((cell) => cell.trim().replace(/^`([^`]*)`$/, '$1')));
}

/** The code blocks of the section below this heading, such as `### With Compose`. */
export function blocksUnder(document: string, heading: string): string[] {
  const [, rest = ''] = readDocument(document).split(`\n${heading}\n`);
  const [section = ''] = rest.split(/\n#+ /);
  return [...section.matchAll(/^```\w*\n([^]*?)^```$/gm)].map(([, block = '']) => block);
}

export function documentedMetrics() {
  return rowsUnder('docs/observability.md', 'metric').map(
    ([name = '', type = '', labels = '', unit = '']) => ({
      name,
      type,
      labels: [...labels.matchAll(/[a-z_]+/g)].map(String),
      unit,
    }),
  );
}

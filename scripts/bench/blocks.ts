/**
 * Parts of documents that a script writes, between two comments. The text around them is written by
 * hand.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './builds.ts';

/** Replaces the part of this name in a document. */
export function writeBlock(document: string, name: string, text: string): void {
  const path = join(root, document);
  const begin = `<!-- begin ${name} -->`;
  const end = `<!-- end ${name} -->`;
  const [before, rest] = readFileSync(path, 'utf8').split(begin);
  const after = rest?.split(end)[1];
  if (before === undefined || after === undefined)
    throw new Error(`${document} has no ${begin} or no ${end}`);
  writeFileSync(path, `${before}${begin}\n\n${text.trim()}\n\n${end}${after}`);
}

type Rows = ReadonlyArray<readonly string[]>;

/** A table in Markdown. The first row is the head. */
export function table([head = [], ...rows]: Rows): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |\n`;
  return [line(head), `|${' --- |'.repeat(head.length)}\n`, ...rows.map(line)].join('');
}

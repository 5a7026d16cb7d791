import { isUtf8 } from 'node:buffer';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { type Arguments, OperationFailed, type Terminal, UsageError } from './command.ts';

/** @returns seconds. @param what names the value in the error message */
export function parseDuration(what: string, text: string): number {
  const [, number, unit = 's'] = /^([0-9]{1,10})([smhdw]?)$/.exec(text) ?? [];
  if (!number)
    throw new UsageError(
      `${what} must be a number of seconds, or a time such as 30s, 15m, 12h, 7d or 1w`,
    );
  const seconds = Number(number) * ({ s: 1, m: 60, h: 3_600, d: 86_400, w: 604_800 }[unit] ?? 1);
  if (seconds > 36_500 * 86_400) throw new UsageError(`${what} must be at most 36500d`);
  return seconds;
}

/** Removes control characters: a text from elsewhere could move the cursor or redraw the screen (CWE-150). */
export const stripControlChars = (text: string): string => text.replace(/[^\P{Cc}\n\t]/gu, '');

/** Replaces control characters, line breaks and characters that change the direction of a text with spaces. */
export const oneLine = (text: string): string =>
  text.replace(/[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+/gu, ' ');

type Cells = readonly unknown[];

/** A row of a table, in which every value is one line of text. */
export const textCells = (cells: Cells): string[] =>
  cells.map((cell) => oneLine(cell instanceof Date ? cell.toISOString() : String(cell ?? '–')));

/** Each column is as wide as its widest cell. */
function printTable(print: Terminal['print'], rows: readonly Cells[]): void {
  const all = rows.map(textCells);
  const width = (column: number) =>
    all.reduce((widest, row) => Math.max(widest, row[column]?.length ?? 0), 0);
  const widths = rows[0]?.map((_, column) => width(column)) ?? [];
  for (const row of all)
    print(
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    );
}

/** Prints rows as JSON, or as a table. @param view for JSON */
export function printRows<Row>(
  { flag }: Arguments,
  { print }: Terminal,
  rows: readonly Row[],
  head: Cells,
  cells: (row: Row) => Cells,
  view: (row: Row) => unknown = (row) => row,
): void {
  if (flag('json')) print(JSON.stringify(rows.map(view)));
  else printTable(print, [head, ...rows.map(cells)]);
}

/** Prints an object as JSON, or each of its members on a line of its own. */
export function printMembers({ flag }: Arguments, { print }: Terminal, value: object): void {
  if (flag('json')) print(JSON.stringify(value));
  else
    printTable(
      print,
      Object.entries(value).map(([name, member]) => [name.replaceAll('_', ' '), member]),
    );
}

/** Reads the inputs that a command asks for, one after the other. */
export interface LineReader {
  /** The next line. */
  next(prompt: string): Promise<string>;
  /** All that follows, without a newline at its end, which `echo`, editors and Enter add. */
  rest(prompt: string): Promise<string>;
  readonly isTyped: boolean; // whether a person types the lines unseen, and may mistype
  close(): void;
}

/** All of standard input. */
export async function readInput(): Promise<string> {
  const whole = await buffer(process.stdin);
  if (!isUtf8(whole)) throw new UsageError('standard input is not UTF-8 text');
  return whole.toString('utf8');
}

/** Asks for secrets: on a terminal without echo, from a pipe line by line. The caller closes the reader. */
export const openLines = async (): Promise<LineReader> =>
  process.stdin.isTTY ? hiddenLines(process.stdin) : pipedLines(await readInput());

function pipedLines(text: string): LineReader {
  let left = text;
  return {
    async next() {
      const [line = ''] = left.split('\n', 1);
      left = left.slice(line.length + 1);
      return line.replace(/\r$/, '');
    },
    rest: async () => left.replace(/\r?\n$/, ''),
    isTyped: false,
    close: () => {},
  };
}

/** Reads from a terminal without echo. One reader for all lines, so that no pasted line reaches the shell. */
function hiddenLines(input: NodeJS.ReadStream): LineReader {
  // The terminal's echo is off while lines are read, and readline's own output is discarded.
  const output = new Writable({ write: (_chunk, _encoding, done) => done() });
  const reader = createInterface({ input, output, terminal: true });
  let isCancelled = false;
  let isAsking = false;
  reader.on('SIGINT', () => {
    isCancelled = true;
    reader.close();
    // Between two prompts, Ctrl-C ends the command.
    if (!isAsking) process.kill(process.pid, 'SIGINT');
  });
  const lines = reader[Symbol.asyncIterator]();
  async function read(prompt: string, max: number): Promise<string> {
    process.stderr.write(prompt);
    isAsking = true;
    const read: string[] = [];
    for (let line = await lines.next(); !line.done; line = await lines.next()) {
      read.push(line.value);
      if (read.length === max) break;
    }
    isAsking = false;
    process.stderr.write('\n');
    if (isCancelled || read.length === 0) throw new OperationFailed('nothing was entered'); // Ctrl-C or Ctrl-D
    return read.join('\n');
  }
  return {
    next: (prompt) => read(prompt, 1),
    rest: (prompt) => read(`${prompt}(end with Enter and Ctrl-D) `, Infinity),
    isTyped: true,
    close: () => reader.close(),
  };
}

import { isUtf8 } from 'node:buffer';
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import {
  type Arguments,
  type Invocation,
  OperationFailed,
  type Terminal,
  UsageError,
} from './command.ts';
import { isObject } from '../platform/http/route/schema.ts';
import { codeOf } from '../platform/runtime/errors.ts';
import { DAY_SECONDS, parseDurationMs } from '../platform/runtime/duration.ts';
import { toOneLine } from '../platform/runtime/text.ts';
import { escapeUnsafe } from '../platform/runtime/text.ts';

/** @returns the seconds that the option of this name gives, or undefined without the option */
export function readDuration({ text }: Arguments, name: string) {
  const value = text(name);
  if (value === undefined) return undefined;
  const given = /^[0-9]+$/.test(value) ? `${value}s` : value;
  const durationMs = parseDurationMs(given, ['s', 'm', 'h', 'd', 'w']);
  if (durationMs === null) {
    throw new UsageError(
      `--${name} must be a number of seconds, or a time such as 30s, 15m, 12h, 7d or 1w`,
    );
  }
  const seconds = durationMs / 1_000;
  if (seconds > 36_500 * DAY_SECONDS) throw new UsageError(`--${name} must be at most 36500d`);
  return seconds;
}

/** The columns of a table, by their heads: each shows a member of a row, or what it computes. */
export type Columns<Row> = Readonly<Record<string, keyof Row | ((row: Row) => unknown)>>;

/** The cells of a row, each of them one line of text. */
export const cellsOf = <Row>(row: Row, columns: Columns<Row>) =>
  Object.values(columns).map((column) =>
    cellText(typeof column === 'function' ? column(row) : row[column]),
  );

const cellText = (value: unknown) =>
  toOneLine(value instanceof Date ? value.toISOString() : String(value ?? '–'));

/** Each column is as wide as its widest cell. */
function printTable(print: Terminal['print'], rows: ReadonlyArray<readonly string[]>) {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [column, { length }] of row.entries())
      widths[column] = Math.max(widths[column] ?? 0, length);
  }
  for (const row of rows) {
    const cells = row.map((cell, column) => cell.padEnd(widths[column] ?? 0));
    print(cells.join('  ').trimEnd());
  }
}

/** JSON that a terminal may show. */
export const toJson = (value: unknown) => escapeUnsafe(JSON.stringify(value));

/** Prints rows as JSON, or as a table. @param view for JSON */
export function printRows<Row>(
  { flag, print }: Invocation,
  rows: readonly Row[],
  columns: Columns<Row>,
  view: (row: Row) => unknown = (row) => row,
) {
  if (flag('json')) print(toJson(rows.map(view)));
  else printTable(print, [Object.keys(columns), ...rows.map((row) => cellsOf(row, columns))]);
}

/** Prints an object as JSON, or each of its members on a line of its own. */
export function printMembers({ flag, print }: Invocation, value: object) {
  if (flag('json')) return print(toJson(value));
  const rows = Object.entries(value).map(([name, member]) => [
    cellText(name.replaceAll('_', ' ')),
    cellText(member),
  ]);
  printTable(print, rows);
}

/** The members of a reply, none if it is no object. */
export const membersOf = (value: unknown): Readonly<Record<string, unknown>> =>
  isObject(value) ? value : {};

/** Reads the inputs that a command asks for, one after the other. */
export type LineReader = ReturnType<typeof hiddenLines>;

/** All of standard input, or other content. @param from where it is from, for the error */
export async function readInput(
  { stdin }: Terminal,
  content = buffer(stdin()),
  from = 'standard input',
) {
  const whole = await content;
  if (!isUtf8(whole)) throw new UsageError(`${from} is not UTF-8 text`);
  return whole.toString('utf8');
}

/** The file that an option names. @throws UsageError */
export const readOptionFile = (name: string, path: string) =>
  readFile(path).catch((error: unknown) => {
    throw new UsageError(`--${name} cannot be read (${codeOf(error)})`);
  });

/** @returns the content without its final newline. @param name of the option */
export async function readSecretFile(name: string, file: string, terminal: Terminal) {
  const content = file === '-' ? undefined : readOptionFile(name, file);
  return (await readInput(terminal, content, `--${name}`)).replace(/\r?\n$/, '');
}

/** Asks for secrets: on a terminal without echo, from a pipe line by line. */
export async function withLines<T>(
  terminal: Terminal,
  work: (lines: LineReader) => Promise<T>,
): Promise<T> {
  const { isTTY } = terminal.stdin();
  const lines = isTTY ? hiddenLines(terminal) : pipedLines(await readInput(terminal));
  try {
    return await work(lines);
  } finally {
    lines.close();
  }
}

function pipedLines(text: string) {
  let left = text;
  return {
    async next() {
      const [line = ''] = left.split('\n', 1);
      left = left.slice(line.length + 1);
      return line.replace(/\r$/, '');
    },
    rest: async () => left.replace(/^([^\n]*[^\r\n])\r?\n$/, '$1'),
    close: () => {},
  };
}

/**
 * Reads from a terminal without echo. One reader for all lines, so that no pasted line reaches the
 * shell.
 */
function hiddenLines({ stdin, stderr }: Terminal) {
  // The terminal's echo is off while lines are read, and readline's own output is discarded.
  const output = new Writable({ write: (_chunk, _encoding, done) => done() });
  const reader = createInterface({
    input: stdin(),
    output,
    terminal: true,
  });
  let isCancelled = false;
  let isAsking = false;
  reader.on('SIGINT', () => {
    isCancelled = true;
    reader.close();
    // Between two prompts, Ctrl-C ends the command.
    if (!isAsking) process.kill(process.pid, 'SIGINT');
  });
  const lines = reader[Symbol.asyncIterator]();
  async function read(prompt: string, max: number) {
    stderr.write(prompt);
    isAsking = true;
    const read: string[] = [];
    while (read.length < max) {
      const line = await lines.next();
      if (line.done) break;
      read.push(line.value);
    }
    isAsking = false;
    stderr.write('\n');
    // Ctrl-C or Ctrl-D.
    if (isCancelled || read.length === 0) throw new OperationFailed('nothing was entered');
    return read;
  }
  return {
    /** The next line. */
    next: async (prompt: string) => (await read(prompt, 1)).join(),
    /**
     * All that follows. A single line is without its end, which `echo`, editors and Enter add. Of
     * several lines, the last one keeps it: without it, OpenSSH does not read a private key.
     */
    async rest(prompt: string) {
      const lines = await read(`${prompt}(end with Enter and Ctrl-D) `, Infinity);
      return lines.length === 1 ? lines.join() : `${lines.join('\n')}\n`;
    },
    close: () => reader.close(),
  };
}

import type { Writable } from 'node:stream';
import { escapeUnsafe } from './text.ts';

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
type Fields = Readonly<Record<string, string | number | boolean | null | undefined>>;
type Write = (message: string, fields?: Fields, more?: Fields) => void;

/**
 * One JSON object per line. Fields never hold a token, key, password, secret or query string. Of
 * the errors of a route, five lines a second are written for each message, then the number omitted.
 */
export interface Log extends Readonly<Record<'debug' | 'info' | 'warn' | 'error', Write>> {
  /** A warning that clients can cause. It is limited like errors. */
  readonly limited: Write;
  /** The same log with additional fields on every line. */
  with(fields: Fields): Log;
  /** The lowest level that is written; `silent` writes nothing. One for all logs made by `with`. */
  level: LogLevel;
}

/** @param write takes one line with its newline, and its level */
export const createLog = (level: LogLevel, write: Output['write'], common: Fields = {}) =>
  derive({ level, write, time: createClock() }, common);

interface Output {
  level: LogLevel;
  write(line: string, level: LogLevel): void;
  time(): string;
}

/** @returns the time as text. Made once a millisecond: it takes a third of the time of a line. */
function createClock() {
  let at = 0;
  let text = '';
  return () => {
    const now = Date.now();
    if (now !== at) text = new Date(now).toISOString();
    at = now;
    return text;
  };
}

function derive(output: Output, common: Fields): Log {
  const at = (name: LogLevel): Write => {
    // Rendered once: what all lines have in common costs a line nothing.
    const head = escapeUnsafe(JSON.stringify({ level: name, ...common }).slice(1, -1));
    return (message, fields, more) => {
      if (LOG_LEVELS.indexOf(name) < LOG_LEVELS.indexOf(output.level)) return;
      const time = output.time();
      // One object after the other: V8 takes as long to merge two as to write both.
      const rest = `"message":${JSON.stringify(message)}${membersOf(fields)}${membersOf(more)}`;
      output.write(`{"time":"${time}",${head},${escapeUnsafe(rest)}}\n`, name);
    };
  };
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: limitPerSecond(at('error')),
    limited: limitPerSecond(at('warn')),
    with: (fields) => derive(output, { ...common, ...fields }),
    get level() {
      return output.level;
    },
    set level(level) {
      output.level = level;
    },
  };
}

function membersOf(fields: Fields = {}) {
  const text = JSON.stringify(fields).slice(1, -1);
  return text === '' ? '' : `,${text}`;
}

const MAX_PER_SECOND = 5;

/**
 * Otherwise a flood of rejected requests would fill the disk and push other lines out of the log.
 */
function limitPerSecond(write: Write): Write {
  const counts = new Map<string, number>();
  return (message, fields) => {
    const route = fields?.route;
    if (route === undefined) return write(message, fields);
    const kind = `${message} ${route}`;
    const count = counts.get(kind) ?? 0;
    counts.set(kind, count + 1);
    if (count < MAX_PER_SECOND) write(message, fields);
    if (count > 0) return;
    setTimeout(() => {
      const omitted = (counts.get(kind) ?? 0) - MAX_PER_SECOND;
      counts.delete(kind);
      if (omitted > 0) write(message, { route, omitted });
    }, 1_000).unref();
  };
}

/**
 * How many characters may wait for a reader that is too slow. Lines beyond them are dropped, to
 * bound the memory.
 */
const MAX_UNWRITTEN = 4 * 1024 * 1024;

/** Of the writers that are open. */
const closes = new Set<() => void>();

/**
 * One listener for all writers, whose last lines are written however this process ends, except by
 * kill -9. Node warns of a leak after ten listeners.
 */
function closeAll() {
  for (const close of closes) close();
}

/**
 * Gathers the lines of one turn of the event loop into one write. After a gap, a line says how many
 * are missing.
 * @param format rewrites each line for human readers
 */
export function createLineWriter(output: Writable, format?: (line: string) => string) {
  let gathered = '';
  let dropped = 0;
  // Not `output.writableLength`: the plain webhook receiver writes its events to the same stream.
  let unwritten = 0;
  const gather = (line: string) => {
    gathered += format?.(line) ?? line;
  };
  const log = createLog('warn', gather);
  const addNotice = () => {
    if (dropped > 0) log.warn('log lines dropped: the reader is too slow', { lines: dropped });
    dropped = 0;
  };
  const writeGathered = () => {
    const text = gathered;
    gathered = '';
    unwritten += text.length;
    if (text === '') return;
    output.write(text, () => {
      unwritten -= text.length;
    });
  };
  /** Writes the last lines at once. */
  const close = () => {
    addNotice();
    writeGathered();
    closes.delete(close);
    if (closes.size === 0) process.off('exit', closeAll);
  };
  if (closes.size === 0) process.on('exit', closeAll);
  closes.add(close);
  return {
    write(line: string) {
      if (unwritten + gathered.length > MAX_UNWRITTEN) {
        dropped += 1;
        return;
      }
      if (gathered === '') setImmediate(writeGathered);
      addNotice();
      gather(line);
    },
    close,
  };
}

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
type Fields = Readonly<Record<string, string | number | boolean | null | undefined>>;

/** One JSON object per line. Callers pass facts, never tokens, keys, passwords, secrets or query strings. */
export interface Log {
  debug(message: string, fields?: Fields): void;
  info(message: string, fields?: Fields): void;
  warn(message: string, fields?: Fields): void;
  error(message: string, fields?: Fields): void;
  /** The same log with fields that every line carries. */
  with(fields: Fields): Log;
}

/**
 * @param level lines below it are not written; `silent` writes none
 * @param write takes one line with its newline
 */
export function createLog(level: LogLevel, write: (line: string) => void, always: Fields = {}): Log {
  const least = LOG_LEVELS.indexOf(level);
  const at = (name: LogLevel) => {
    if (LOG_LEVELS.indexOf(name) < least) return () => {};
    // What every line has is written once; the rest goes on where this object ends.
    const same = JSON.stringify({ level: name, ...always }).slice(1, -1);
    return (message: string, fields?: Fields) => {
      const rest = fields ? JSON.stringify(fields) : '{}';
      write(`{"time":"${now()}",${same},"message":${JSON.stringify(message)}${rest === '{}' ? '}' : `,${rest.slice(1)}`}\n`);
    };
  };
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    with: (fields) => createLog(level, write, { ...always, ...fields }),
  };
}

let moment = { at: 0, text: '' };
/** Written once for all lines of a millisecond. */
function now(): string {
  const at = Date.now();
  if (at !== moment.at) moment = { at, text: new Date(at).toISOString() };
  return moment.text;
}

/** Lines on their way to where they are written. */
export interface Lines {
  add(line: string): void;
  /** Writes what has gathered, now. */
  flush(): void;
}

/** So many bytes at once reach a pipe undivided, whoever else writes into it (POSIX, PIPE_BUF on Linux). */
const UNDIVIDED = 4_096;

/** What waits for a reader that has stopped. More is dropped: the memory is needed, and a service goes on without its log. */
const MOST_UNWRITTEN = 1024 * 1024;

/**
 * Gathers the lines of a turn of the event loop into few writes, because a write for each costs as much as an answer.
 * @param unwritten bytes that were written before and have not left the process
 */
export function gather(write: (lines: string) => void, unwritten: () => number): Lines {
  let gathered = '';
  let bytes = 0;
  let count = 0;
  let dropped = 0;
  const flush = () => {
    if (bytes === 0) return;
    const [lines, lost] = [gathered, dropped];
    const isFull = unwritten() > MOST_UNWRITTEN;
    dropped = isFull ? lost + count : 0;
    gathered = '';
    bytes = 0;
    count = 0;
    if (isFull) return;
    if (lost > 0) write(`{"time":"${now()}","level":"warn","message":"log lines were dropped, because nobody read them","lines":${lost}}\n`);
    write(lines);
  };
  return {
    add(line) {
      const more = Buffer.byteLength(line);
      if (bytes + more > UNDIVIDED) flush();
      if (bytes === 0) setImmediate(flush);
      gathered += line;
      bytes += more;
      count += 1;
    },
    flush,
  };
}

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
type Fields = Readonly<Record<string, string | number | boolean | null | undefined>>;

/** One JSON object per line. Callers pass facts, never tokens, keys, passwords, secrets or query strings. */
export interface Log {
  debug(message: string, fields?: Fields): void;
  info(message: string, fields?: Fields): void;
  warn(message: string, fields?: Fields): void;
  error(message: string, fields?: Fields): void;
  /** As `info`, for what anybody can cause any number of: the first that is dropped where the log is not read fast enough. */
  often(message: string, fields?: Fields): void;
  /** The same log with fields that every line carries. */
  with(fields: Fields): Log;
}

/**
 * @param level lines below it are not written; `silent` writes none
 * @param write takes one line with its newline
 */
export function createLog(level: LogLevel, write: Lines['add'], always: Fields = {}): Log {
  const least = LOG_LEVELS.indexOf(level);
  const at = (name: LogLevel, isOften = false) => {
    if (LOG_LEVELS.indexOf(name) < least) return () => {};
    // What every line has is written once; the rest goes on where this object ends.
    const same = JSON.stringify({ level: name, ...always }).slice(1, -1);
    return (message: string, fields?: Fields) => {
      const rest = fields ? JSON.stringify(fields) : '{}';
      write(`{"time":"${now()}",${same},"message":${JSON.stringify(message)}${rest === '{}' ? '}' : `,${rest.slice(1)}`}\n`, isOften);
    };
  };
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    often: at('info', true),
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
  /** @param isOften dropped before others are */
  add(line: string, isOften?: boolean): void;
  /** Writes what has gathered, now, and how much is missing. */
  flush(): void;
}

/** So many bytes at once reach a pipe undivided, whoever else writes into it (POSIX, PIPE_BUF on Linux). */
const UNDIVIDED = 4_096;

/**
 * What may wait for a reader that has stopped, or is too slow. More is dropped: the memory is needed, and a service goes on
 * without its log. A stranger who sends requests faster than their lines are read drops no other lines with that.
 */
const MOST_UNWRITTEN = 4 * 1024 * 1024;
const MOST_OFTEN = 1024 * 1024;

/**
 * Gathers the lines of a turn of the event loop into few writes, because a write for each costs as much as an answer.
 * @param unwritten how much was written before and has not left the process
 */
export function gather(write: (lines: string) => void, unwritten: () => number): Lines {
  let gathered = '';
  let bytes = 0;
  let dropped = 0;
  const flush = () => {
    const [lines, missing] = [gathered, dropped];
    gathered = '';
    bytes = 0;
    dropped = 0;
    if (missing > 0) write(`{"time":"${now()}","level":"warn","message":"log lines were dropped, because they were not read fast enough","lines":${missing}}\n`);
    if (lines !== '') write(lines);
  };
  return {
    add(line, isOften = false) {
      if (unwritten() + bytes > (isOften ? MOST_OFTEN : MOST_UNWRITTEN)) return void (dropped += 1);
      const more = Buffer.byteLength(line);
      if (bytes + more > UNDIVIDED) flush();
      if (bytes === 0) setImmediate(flush);
      gathered += line;
      bytes += more;
    },
    flush,
  };
}

import type { Writable } from 'node:stream';

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
export function createLog(level: LogLevel, write: (line: string) => void, common: Fields = {}): Log {
  const threshold = LOG_LEVELS.indexOf(level);
  const at = (name: LogLevel) => {
    if (LOG_LEVELS.indexOf(name) < threshold) return () => {};
    const start = JSON.stringify({ level: name, ...common }).slice(1, -1);
    return (message: string, fields?: Fields) => {
      const rest = fields ? JSON.stringify(fields) : '{}';
      const end = rest === '{}' ? '}' : `,${rest.slice(1)}`;
      write(`{"time":"${new Date().toISOString()}",${start},"message":${JSON.stringify(message)}${end}\n`);
    };
  };
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    with: (fields) => createLog(level, write, { ...common, ...fields }),
  };
}

/** Lines on their way to a stream. */
export interface LineWriter {
  write(line: string): void;
  /** Hands over what has gathered, now. */
  flush(): void;
}

/** What may wait for a reader that has stopped or is too slow. Further lines are dropped: memory must not grow with them. */
const MAX_UNWRITTEN_BYTES = 4 * 1024 * 1024;

/**
 * Gathers the lines of one turn of the event loop into one write: a write per line costs as much as a reply.
 * A line that was written after some were dropped tells how many.
 */
export function createLineWriter(output: Writable): LineWriter {
  let gathered = '';
  let dropped = 0;
  // Counted here, not by `writableLength`: the plain webhook receiver's events use the same stream, and its senders wait.
  let unwritten = 0;
  const flush = () => {
    if (dropped > 0) {
      gathered += `{"time":"${new Date().toISOString()}","level":"warn","message":"log lines dropped: the reader is too slow","lines":${dropped}}\n`;
    }
    const text = gathered;
    gathered = '';
    dropped = 0;
    if (text === '') return;
    unwritten += text.length;
    output.write(text, () => (unwritten -= text.length));
  };
  return {
    write(line) {
      if (gathered === '' && dropped === 0) setImmediate(flush);
      if (unwritten + gathered.length > MAX_UNWRITTEN_BYTES) dropped += 1;
      else gathered += line;
    },
    flush,
  };
}

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
    return (message: string, fields?: Fields) =>
      write(`${JSON.stringify({ time: new Date().toISOString(), level: name, ...always, message, ...fields })}\n`);
  };
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    with: (fields) => createLog(level, write, { ...always, ...fields }),
  };
}

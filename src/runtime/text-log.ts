/** Characters that could move the cursor, redraw the screen or reverse a text (CWE-150). */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;
const escape = (text: string): string =>
  text.replace(
    UNSAFE,
    (found) => `\\u${(found.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`,
  );

/** As it is if it is one plain word, otherwise quoted. */
const shown = (value: unknown): string => {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return /^[^\s"=]+$/.test(text) ? text : JSON.stringify(text);
};

/**
 * Rewrites a line of the log for human readers: time, level, service and message, then the other members.
 * @param line a JSON object with its newline
 */
export function formatLine(line: string): string {
  const { time, level, service, message, ...others }: Readonly<Record<string, unknown>> =
    JSON.parse(line);
  const { method, route, status, duration_ms: ms, ...rest } = others;
  const isRequest = message === 'request';
  // The name of a route begins with its method, unless there is none.
  const target = String(route).startsWith(`${String(method)} `)
    ? String(route)
    : `${String(method)} ${String(route)}`;
  const what = isRequest ? `${String(status)} ${target} ${String(ms)} ms` : String(message);
  const members = Object.entries(isRequest ? rest : others).filter(([, value]) => value !== null);
  const clock = String(time).slice(11, 23);
  const head = `${clock} ${String(level).toUpperCase().padEnd(5)} ${String(service ?? 'process').padEnd(8)} ${what}`;
  return `${escape([head, ...members.map(([name, value]) => `${name}=${shown(value)}`)].join(' '))}\n`;
}

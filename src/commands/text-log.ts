import { escapeUnsafe } from '../platform/runtime/text.ts';

/** As it is if it is one plain word, otherwise quoted. */
const shown = (value: unknown): string => {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return /^[^\s"=]+$/.test(text) ? text : JSON.stringify(text);
};

/**
 * Rewrites a line of the log for human readers: time, level, service and message, then the other
 * members. Only one process writes to a terminal: which one is left out.
 * @param line a JSON object with its newline
 */
export function formatLine(line: string) {
  const parsed: Readonly<Record<string, unknown>> = JSON.parse(line);
  const { time, level, service = 'process', message, instance, version, ...others } = parsed;
  const { method, route, status, duration_ms: ms, ...rest } = others;
  const isRequest = message === 'request';
  // The name of a route begins with its method, unless there is none.
  const target = String(route).startsWith(`${method} `) ? route : `${method} ${route}`;
  const members = Object.entries(isRequest ? rest : others).filter(([, value]) => value !== null);
  const words = [
    String(time).slice(11, 23),
    String(level).toUpperCase().padEnd(5),
    String(service).padEnd(8),
    isRequest ? `${status} ${target} ${ms} ms` : message,
    ...members.map(([name, value]) => `${name}=${shown(value)}`),
  ];
  return `${escapeUnsafe(words.join(' '))}\n`;
}

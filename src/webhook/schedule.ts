import { DAY_SECONDS, parseDurationMs, UNITS_MS } from '../runtime/duration.ts';
import { Expected, type Variable } from '../runtime/variables.ts';

/** The largest first. */
const UNITS = ['d', 'h', 'm', 's', 'ms'] as const;
const MAX_PAUSES = 99;
const MAX_PAUSE_MS = 7 * DAY_SECONDS * 1_000;

/** Pauses between attempts in milliseconds, as 500ms,5s,2m,4h,1d; `none` is a single attempt. */
export function retrySchedule(fallback: string): Variable<readonly number[]> {
  const expected = new Expected(
    `none, or up to ${MAX_PAUSES} pauses of at most 7d each, such as ${fallback}`,
  );
  const parse = (text: string) => {
    const pauses = readPauses(text);
    const isValid =
      pauses.length <= MAX_PAUSES && pauses.every((pauseMs) => pauseMs <= MAX_PAUSE_MS);
    return isValid ? pauses : expected;
  };
  return { fallback, unset: readPauses(fallback), parse };
}

/** @returns infinity for what is not a pause */
function readPauses(text: string) {
  if (text === 'none') return [];
  return text.split(',').map((pause) => parseDurationMs(pause.trim(), UNITS) ?? Infinity);
}

/** @returns such as 30s or 2h, in the largest unit without a rest */
export function formatPause(pauseMs: number) {
  const unit = UNITS.find((one) => pauseMs > 0 && pauseMs % UNITS_MS[one] === 0) ?? 's';
  return `${pauseMs / UNITS_MS[unit]}${unit}`;
}

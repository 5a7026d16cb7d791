import { DAY_SECONDS, parseDurationMs, UNITS_MS } from '../platform/runtime/duration.ts';
import { type Env, Expected } from '../platform/runtime/env.ts';

/** The largest first. */
const UNITS = ['d', 'h', 'm', 's', 'ms'] as const;
const MAX_PAUSES = 99;
const MAX_PAUSE_MS = 7 * DAY_SECONDS * 1_000;

const USUAL = '5s,30s,2m,10m,30m,1h,2h,4h,8h,12h,20h,24h';

/** Pauses between attempts in milliseconds, of 500ms,5s,2m,4h,1d; `none` is a single attempt. */
export const readSchedule = (env: Env): readonly number[] =>
  env.get('WEBHOOK_RETRY_SCHEDULE', readPauses(USUAL), parseSchedule, USUAL);

function parseSchedule(text: string) {
  const pauses = readPauses(text);
  const areShort = pauses.every((pauseMs) => pauseMs <= MAX_PAUSE_MS);
  if (pauses.length <= MAX_PAUSES && areShort) return pauses;
  throw new Expected(`none, or up to ${MAX_PAUSES} pauses of at most 7d each, such as ${USUAL}`);
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

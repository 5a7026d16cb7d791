/** Durations are in seconds unless their names end with `Ms`. */
export const DAY_SECONDS = 86_400;

/** In milliseconds, the largest first. */
export const UNITS_MS = {
  w: 7 * DAY_SECONDS * 1_000,
  d: DAY_SECONDS * 1_000,
  h: 3_600_000,
  m: 60_000,
  s: 1_000,
  ms: 1,
} as const;
type Unit = keyof typeof UNITS_MS;

/**
 * Reads a whole number with its unit, such as `30s` or `7d`.
 * @param units those that are accepted
 * @returns milliseconds, or null for any other text
 */
export function parseDurationMs(text: string, units: readonly Unit[]) {
  const [, amount, given] = /^([0-9]{1,10})([a-z]+)$/.exec(text) ?? [];
  const unit = units.find((one) => one === given);
  return unit === undefined ? null : Number(amount) * UNITS_MS[unit];
}

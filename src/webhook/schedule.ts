import { DAY, Expected, type Variable } from '../runtime/variables.ts';

/** Pauses in seconds. */
type Schedule = Readonly<{ pauses: readonly number[]; isGiven: boolean }>;

const [DOUBLED_ATTEMPTS, MAX_DOUBLED] = [12, 3_600];

type Given = Readonly<{
  WEBHOOK_RETRY_SCHEDULE: Schedule;
  WEBHOOK_BACKOFF_BASE_MS: number | null;
  WEBHOOK_MAX_ATTEMPTS: number | null;
}>;

/** A list, or a first pause that doubles up to an hour. WEBHOOK_MAX_ATTEMPTS cuts it, or repeats its last pause. */
export function pausesOf(values: Given, problems: string[]): readonly number[] {
  const {
    WEBHOOK_RETRY_SCHEDULE: list,
    WEBHOOK_BACKOFF_BASE_MS: base,
    WEBHOOK_MAX_ATTEMPTS: attempts,
  } = values;
  if (base !== null && list.isGiven) {
    problems.push(
      'WEBHOOK_RETRY_SCHEDULE and WEBHOOK_BACKOFF_BASE_MS are set together; set only one of them.',
    );
  }
  const pauses = list.pauses;
  const length = (attempts ?? (base === null ? pauses.length + 1 : DOUBLED_ATTEMPTS)) - 1;
  return Array.from({ length }, (_, at) =>
    base === null
      ? (pauses[at] ?? pauses.at(-1) ?? 0)
      : Math.min(MAX_DOUBLED, (base / 1_000) * 2 ** at),
  );
}

const UNITS = { d: DAY, h: 3_600, m: 60, s: 1 } as const;
const MAX_PAUSES = 99;

/** @param pause in seconds  @returns such as 30s or 2h, in the largest unit without a rest */
export function formatPause(pause: number): string {
  const [unit, seconds] = Object.entries(UNITS).find(
    ([, one]) => pause >= one && pause % one === 0,
  ) ?? ['s', 1];
  return `${pause / seconds}${unit}`;
}

/** Pauses between attempts, as 5s,2m,4h,1d; `none` is a single attempt. */
export function retrySchedule(fallback: string): Variable<Schedule> {
  const expected = new Expected(
    `none, or up to ${MAX_PAUSES} pauses of at most 7d each, such as ${fallback}`,
  );
  const pauseOf = (text: string) => {
    const [, amount, unit] = /^([0-9]{1,6})([smhd])$/.exec(text.trim()) ?? [];
    return Number(amount) * (Object.entries(UNITS).find(([name]) => name === unit)?.[1] ?? 0);
  };
  const pausesIn = (text: string) => (text === 'none' ? [] : text.split(',').map(pauseOf));
  const parse = (text: string) => {
    const pauses = pausesIn(text);
    const isValid = pauses.length <= MAX_PAUSES && pauses.every((pause) => pause <= 7 * DAY);
    return isValid ? { pauses, isGiven: true } : expected;
  };
  return { fallback, unset: { pauses: pausesIn(fallback), isGiven: false }, parse };
}

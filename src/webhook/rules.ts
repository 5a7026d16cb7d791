import { digest } from '../crypto/token.ts';

/** How long a worker that has gone silent keeps its work. */
export const LEASE_SECONDS = 30;

const LONGEST_DELAY = 3_600;

/**
 * Exponential backoff with full jitter, so that what failed together does not come back together.
 * @param attempt the one that has failed, counted from 1  @param base seconds, the most before the second attempt
 * @param asked what the target has asked for, if it has: it is waited for, within the cap
 */
export function delayAfter(attempt: number, base: number, asked: number | null, random = Math.random()): number {
  const jittered = random * Math.min(LONGEST_DELAY, base * 2 ** (attempt - 1));
  return Math.min(LONGEST_DELAY, Math.max(jittered, asked ?? 0));
}

/** What the events of a page are kept in order by: hashed, because an index takes no text of any length. */
export const orderKeyOf = (pageId: string): string => digest(pageId).toString('base64url');

/** @param patterns names in which `*` stands for any characters; none selects everything */
export function selector(patterns: readonly string[]): (event: string) => boolean {
  return (event) => patterns.length === 0 || patterns.some((pattern) => matches(pattern, event));
}

/** Each piece is looked for behind the one before: a regular expression would take hours for a name made for that. */
function matches(pattern: string, event: string): boolean {
  const [first = '', ...pieces] = pattern.split('*');
  const last = pieces.pop();
  if (last === undefined) return event === pattern;
  if (!event.startsWith(first)) return false;
  let end = first.length;
  for (const piece of pieces) {
    const found = event.indexOf(piece, end);
    if (found < 0) return false;
    end = found + piece.length;
  }
  return event.endsWith(last) && event.length - last.length >= end;
}

/** At most so many a second for each key, after a first burst of as many. In this process alone: each replica counts for itself. */
export function createRate(perSecond: number, now: () => number = performance.now.bind(performance)): (key: string) => number {
  const buckets = new Map<string, { left: number; at: number }>();
  return (key) => {
    const time = now();
    const bucket = buckets.get(key) ?? { left: perSecond, at: time };
    const left = Math.min(perSecond, bucket.left + ((time - bucket.at) / 1000) * perSecond);
    buckets.set(key, { left: left >= 1 ? left - 1 : left, at: time });
    return left >= 1 ? 0 : (1 - left) / perSecond;
  };
}

/** One line of what went wrong, for people: whatever a target or a command wrote is cut short and made harmless. */
export const errorLine = (text: string): string => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ').trim().slice(0, 1_000);

/**
 * Keeps the `size` entries that were set last, and at most as many more: a flood of keys cannot
 * fill the memory.
 */
export function createRecentMap<V>(size: number) {
  let recent = new Map<string, V>();
  let older = recent;
  return {
    get: (key: string) => (recent.has(key) ? recent : older).get(key),
    set(key: string, value: V) {
      if (recent.size >= size && !recent.has(key)) {
        older = recent;
        recent = new Map();
      }
      recent.set(key, value);
    },
  };
}

/** A token bucket for each key, in this process alone. */
export function createRateLimit(burst: number, perSecond: number, now = () => performance.now()) {
  const buckets = createRecentMap<{ left: number; at: number }>(10_000);
  const leftOf = (key: string) => {
    const { left, at } = buckets.get(key) ?? { left: burst, at: now() };
    return Math.min(burst, left + ((now() - at) / 1000) * perSecond);
  };
  /** @returns 0, or the seconds until there is a token */
  const wait = (key: string) => Math.max(0, 1 - leftOf(key)) / perSecond;
  const add = (key: string, tokens: number) =>
    buckets.set(key, { left: Math.max(0, leftOf(key) + tokens), at: now() });
  return {
    isFull: (key: string) => leftOf(key) >= burst,
    wait,
    add,
    take(key: string) {
      const seconds = wait(key);
      if (seconds === 0) add(key, -1);
      return seconds;
    },
  };
}

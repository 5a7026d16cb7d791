/** A number for each key. Those at zero take no memory. */
export function createCounts<Key>() {
  const counts = new Map<Key, number>();
  const of = (key: Key) => counts.get(key) ?? 0;
  return {
    of,
    add(key: Key, amount: number) {
      const count = of(key) + amount;
      if (count === 0) counts.delete(key);
      else counts.set(key, count);
    },
  };
}

import { Overloaded } from './trouble.ts';

/** Work of the same name, one after the other; so many may wait for a name, the rest is refused. */
export interface Turns {
  take<T>(name: string, work: () => Promise<T>): Promise<T>;
}

/** @param seats how many may be under way or waiting for each name */
export function createTurns(seats: number, what: string): Turns {
  const queues = new Map<string, { last: Promise<unknown>; length: number }>();
  return {
    async take(name, work) {
      const queue = queues.get(name) ?? { last: Promise.resolve(), length: 0 };
      if (queue.length >= seats) throw new Overloaded(`too many are waiting for ${what}`);
      queues.set(name, queue);
      queue.length += 1;
      const mine = queue.last.then(work, work);
      queue.last = mine;
      try {
        return await mine;
      } finally {
        queue.length -= 1;
        if (queue.length === 0) queues.delete(name);
      }
    },
  };
}

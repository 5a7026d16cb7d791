import { Overloaded } from './trouble.ts';

/** So many at once, so many waiting; the rest is refused before it starts. */
export interface Gate {
  /**
   * Runs the work when a place is free. Throws `Overloaded` at once when the waiting room is full.
   * @param goesFirst waits in a room of its own, of the same size, whose people are let in before all others
   */
  run<T>(work: () => Promise<T>, goesFirst?: boolean): Promise<T>;
  readonly running: number;
  readonly waiting: number;
}

/** @param places how many run at once  @param seats how many may wait, first come first served */
export function createGate(places: number, seats: number, what: string): Gate {
  let running = 0;
  const first: Array<() => void> = [];
  const others: Array<() => void> = [];
  return {
    get running() {
      return running;
    },
    get waiting() {
      return first.length + others.length;
    },
    async run(work, goesFirst = false) {
      const queue = goesFirst ? first : others;
      if (running >= places) {
        if (queue.length >= seats) throw new Overloaded(`too many are waiting for ${what}`);
        // A leaver hands its place over, so `running` does not change and no newcomer can slip in between.
        await new Promise<void>((resolve) => queue.push(resolve));
      } else {
        running += 1;
      }
      try {
        return await work();
      } finally {
        const next = first.shift() ?? others.shift();
        if (next) next();
        else running -= 1;
      }
    },
  };
}

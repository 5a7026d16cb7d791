import { Overloaded } from '../runtime/errors.ts';
import { Duplicate, Locked, type Locks, Rejected } from './pool.ts';

const MAX_ITEMS = 128; // per statement; with more, the first would wait for the last for little gain
const MAX_BYTES = 1024 * 1024; // per statement
const MAX_TURNS = 3; // of the event loop that a statement waits for more items
/** Bounds on the queue. A caller that waits longer than MAX_WAIT_MS has given up; do not do its work. */
const MAX_WAITING = 1_024;
const MAX_WAIT_MS = 10_000;

interface Options<Item> {
  /** Items with the same key, if not null, never share a statement. */
  readonly keyOf?: (item: Item) => string | null;
  /** The key of a lock that an item may wait for, if not null. By default that of `keyOf`. */
  readonly lockOf?: (item: Item) => string | null;
  readonly bytesOf?: (item: Item) => number;
}

type Call<Item, Result> = { item: Item; since: number; resolve(result: Result): void; reject(error: unknown): void };
type RunAll<Item, Result> = (items: readonly Item[], locks?: Locks) => Promise<readonly Result[]>;

/**
 * Lets calls that arrive together share one statement: one round trip, and for a write one flush to disk. One statement
 * is under way at a time; meanwhile, items for the next one gather. Nothing is cached: each statement is sent after its
 * last call. Each call gets the outcome of its own item, after the commit. If the database rejects a shared statement,
 * or a lock stops it, none of it was done. Then each item is tried alone, so that only the invalid one fails, and only
 * the locked one waits, and later items that need the same lock.
 * @param run one statement for several items; `locks` is for `Database.write`
 * @returns one result for each, in their order
 */
export function batched<Context extends object, Item, Result>(
  run: (context: Context, items: readonly Item[], locks?: Locks) => Promise<readonly Result[]>,
  options: Options<Item> = {},
): (context: Context, item: Item) => Promise<Result> {
  const batches = new WeakMap<Context, (item: Item) => Promise<Result>>();
  return (context, item) => {
    let batch = batches.get(context);
    if (!batch) batches.set(context, (batch = createBatch((items, locks) => run(context, items, locks), options)));
    return batch(item);
  };
}

function createBatch<Item, Result>(run: RunAll<Item, Result>, options: Options<Item>): (item: Item) => Promise<Result> {
  let waiting: Array<Call<Item, Result>> = [];
  let isBusy = false;
  /** The locks of items that are tried alone, and the calls that wait for one of these. */
  const locks = new Set<string | null>();
  let locked: typeof waiting = [];
  const lockOf = ({ item }: Call<Item, Result>) => options.lockOf?.(item) ?? options.keyOf?.(item) ?? null;
  const isLocked = (call: Call<Item, Result>) => locks.size > 0 && locks.has(lockOf(call));

  function schedule(): void {
    if (isBusy || waiting.length === 0) return;
    isBusy = true;
    gather(waiting.length, MAX_TURNS);
  }

  /** Waits to the end of this turn of the event loop, and on while each turn brings more. */
  function gather(before: number, turns: number): void {
    setImmediate(() => {
      const isGrowing = turns > 1 && waiting.length > before && waiting.length < MAX_ITEMS;
      if (isGrowing) return gather(waiting.length, turns - 1);
      void send(takeNext(), 'try').then(() => {
        isBusy = false;
        schedule();
      });
    });
  }

  async function send(calls: typeof waiting, manner?: Locks): Promise<void> {
    if (calls.length === 0) return;
    try {
      const results = await run(calls.map(({ item }) => item), manner);
      if (results.length !== calls.length) throw new Error('internal error: one result for each item');
      for (const [index, result] of results.entries()) calls[index]?.resolve(result);
    } catch (error) {
      const isRejected = calls.length > 1 && (error instanceof Rejected || error instanceof Duplicate);
      // Not awaited: the next statement does not wait for a lock.
      if (error instanceof Locked && manner === 'try') for (const call of calls) void sendAlone(call, 'wait');
      else if (isRejected) for (const call of calls) void sendAlone(call);
      else for (const call of calls) call.reject(error);
    }
  }

  async function sendAlone(call: Call<Item, Result>, manner?: Locks): Promise<void> {
    const lock = lockOf(call);
    if (lock !== null) locks.add(lock);
    await send([call], manner);
    locks.delete(lock);
    waiting = [...locked, ...waiting];
    locked = [];
    schedule();
  }

  /** The calls of the next statement, in the order in which they came. */
  function takeNext(): typeof waiting {
    const oldest = performance.now() - MAX_WAIT_MS;
    const [next, later]: [typeof waiting, typeof waiting] = [[], []];
    const keys = new Set<string | null>();
    let bytes = 0;
    for (const call of waiting) {
      if (call.since <= oldest) {
        call.reject(overloaded());
        continue;
      }
      const key = options.keyOf?.(call.item) ?? null;
      bytes += options.bytesOf?.(call.item) ?? 0;
      const hasRoom = next.length < MAX_ITEMS && bytes <= MAX_BYTES && (key === null || !keys.has(key));
      (isLocked(call) ? locked : next.length === 0 || hasRoom ? next : later).push(call);
      keys.add(key);
    }
    waiting = later;
    return next;
  }

  return (item) =>
    new Promise((resolve, reject) => {
      const call = { item, since: performance.now(), resolve, reject };
      const queue = isLocked(call) ? locked : waiting;
      if (queue.length >= MAX_WAITING) return reject(overloaded());
      queue.push(call);
      schedule();
    });
}

const overloaded = () => new Overloaded('too many calls wait for a shared database statement');

/** An array in PostgreSQL's text form: one parameter, and so one prepared statement, for any number of values. */
export function arrayLiteral(values: ReadonlyArray<string | Buffer | Date | number | null>): string {
  const items = values.map((value) => {
    if (value === null) return 'NULL';
    if (typeof value === 'number') return String(value);
    if (Buffer.isBuffer(value)) return `"\\\\x${value.toString('hex')}"`;
    return value instanceof Date ? value.toISOString() : `"${value.replace(/["\\]/g, '\\$&')}"`;
  });
  return `{${items.join()}}`;
}

/** The same for at least one value in hexadecimal. */
export const hexArrayLiteral = (values: readonly string[]): string => `{"\\\\x${values.join('","\\\\x')}"}`;

/** One row, or null, for each key, in their order. @param rows emptied, so that the driver does not keep them alive */
export function alignToKeys<Row>(keys: readonly string[], rows: Row[], keyOf: (row: Row) => string): Array<Row | null> {
  const found = new Map<string, Row>();
  for (const row of rows.splice(0)) found.set(keyOf(row), row);
  return keys.map((key) => found.get(key) ?? null);
}

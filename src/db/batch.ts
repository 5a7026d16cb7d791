import { setImmediate as endOfTurn } from 'node:timers/promises';
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
 * or a lock stops it, none of it was done. Then each item is tried alone, so that only the invalid one fails, or those
 * that need the same lock together, so that only they and later ones like them wait.
 * @param run one statement for several items; `locks` is for `Database.write`
 * @returns one result for each, in their order
 */
export function batched<Context extends object, Item, Result>(
  run: (context: Context, items: readonly Item[], locks?: Locks) => Promise<readonly Result[]>,
  options: Options<Item> = {},
): (context: Context, item: Item) => Promise<Result> {
  const batches = new WeakMap<Context, (item: Item) => Promise<Result>>();
  return (context, item) => {
    const add = batches.get(context) ?? createBatch((items, locks) => run(context, items, locks), options);
    batches.set(context, add);
    return add(item);
  };
}

function createBatch<Item, Result>(run: RunAll<Item, Result>, options: Options<Item>): (item: Item) => Promise<Result> {
  type Calls = Array<Call<Item, Result>>;
  /** Calls that wait while others are sent: by the key of a lock that stopped a statement, all others by null. */
  const queues = new Map<string | null, Calls>();
  const lockOf = ({ item }: Calls[number]) => options.lockOf?.(item) ?? options.keyOf?.(item) ?? null;

  function enqueue(call: Calls[number], lock = queues.has(lockOf(call)) ? lockOf(call) : null): void {
    const queue = queues.get(lock) ?? [];
    if (queue.length >= MAX_WAITING) return call.reject(overloaded());
    queue.push(call);
    if (!queues.has(lock)) void sendAll(queue, lock);
    queues.set(lock, queue);
  }

  async function sendAll(queue: Calls, lock: string | null): Promise<void> {
    while (queue.length > 0) {
      // Waits to the end of this turn of the event loop, and on while each turn brings more.
      let before = 0;
      for (let turns = 0; turns < MAX_TURNS && queue.length > before && queue.length < MAX_ITEMS; turns += 1) {
        before = queue.length;
        await endOfTurn();
      }
      await send(take(queue), lock === null ? 'try' : 'wait');
    }
    queues.delete(lock);
  }

  async function send(calls: Calls, locks?: Locks): Promise<void> {
    if (calls.length === 0) return;
    try {
      const results = await run(calls.map(({ item }) => item), locks);
      if (results.length !== calls.length) throw new Error('internal error: one result for each item');
      for (const [index, result] of results.entries()) calls[index]?.resolve(result);
    } catch (error) {
      const isRejected = calls.length > 1 && (error instanceof Rejected || error instanceof Duplicate);
      // Neither is awaited: the next statement does not wait for a lock.
      if (isRejected) for (const call of calls) void send([call]);
      else if (error instanceof Locked && locks === 'try') separate(calls);
      else for (const call of calls) call.reject(error);
    }
  }

  /** Calls that need the same lock stay together: waiting for it one by one would take as many commits. */
  function separate(calls: Calls): void {
    for (const call of calls) {
      if (lockOf(call) === null) void send([call], 'wait');
      else enqueue(call, lockOf(call));
    }
    for (const call of queues.get(null)?.splice(0) ?? []) enqueue(call); // they may need one of these locks, too
  }

  /** Removes the calls of the next statement, in the order in which they came. */
  function take(queue: Calls): Calls {
    const oldest = performance.now() - MAX_WAIT_MS;
    const next: Calls = [];
    const keys = new Set<string | null>();
    let bytes = 0;
    for (const call of queue.splice(0)) {
      const key = options.keyOf?.(call.item) ?? null;
      bytes += options.bytesOf?.(call.item) ?? 0;
      const hasRoom = next.length < MAX_ITEMS && bytes <= MAX_BYTES && (key === null || !keys.has(key));
      if (call.since <= oldest) call.reject(overloaded());
      else (next.length === 0 || hasRoom ? next : queue).push(call);
      keys.add(key);
    }
    return next;
  }

  return (item) => new Promise((resolve, reject) => enqueue({ item, since: performance.now(), resolve, reject }));
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
  const found = new Map(rows.splice(0).map((row) => [keyOf(row), row]));
  return keys.map((key) => found.get(key) ?? null);
}

import { setImmediate as endOfTurn } from 'node:timers/promises';
import { Overloaded } from '../runtime/errors.ts';
import { Duplicate, Locked, type Locks, Rejected } from './pool.ts';

const MAX_ITEMS = 32; // per statement; with more, half the callers would wait while the database works for all
const MAX_UNDER_WAY = 2; // statements of one kind; one is prepared while the database works on the other
const MAX_BYTES = 1024 * 1024; // per statement
const MAX_TURNS = 3; // of the event loop that a statement waits for more items
/** Bounds on the queue. A caller that waits longer than MAX_WAIT_MS has given up; do not do its work. */
const MAX_WAITING = 1_024;
const MAX_WAIT_MS = 10_000;

interface Options<Item> {
  /** Items with the same key, if not null, never share a statement. */
  readonly keyOf?: (item: Item) => string | null;
  /** The key of a lock that an item may wait for, if not null. By default the key of `keyOf`. */
  readonly lockOf?: (item: Item) => string | null;
  readonly bytesOf?: (item: Item) => number;
}

type Call<Item, Result> = {
  item: Item;
  since: number;
  resolve(result: Result): void;
  reject(error: unknown): void;
};
/** `lock`: the key of the lock that its calls wait for. `senders`: of statements under way or being gathered. */
type Queue<Call> = {
  readonly calls: Call[];
  readonly lock: string | null;
  senders: number;
  isGathering: boolean;
};
type Run<From, Item, Result> = (
  context: From,
  items: readonly Item[],
  locks?: Locks,
) => Promise<readonly Result[]>;

/**
 * Lets calls that arrive together share one statement: one round trip, and for a write one flush to disk. Two are under
 * way at a time, in order over one connection; meanwhile, items for the next one gather. Nothing is cached: each
 * statement is sent after its last call. Each call gets the outcome of its own item, after the commit. If the database
 * rejects a shared statement, or a lock stops it, none of it was done. Then each item is tried alone, so that only the
 * invalid one fails, or those that need the same lock together, so that only they and later ones like them wait.
 * @param run one statement for several items; `locks` is for `Database.write`
 * @returns one result for each, in their order
 */
export function batched<Context extends object, Item, Result>(
  run: Run<Context, Item, Result>,
  options: Options<Item> = {},
): (context: Context, item: Item) => Promise<Result> {
  const batches = new WeakMap<Context, (call: Call<Item, Result>) => void>();
  return (context, item) => {
    const enqueue = batches.get(context) ?? createBatch(context, run, options);
    batches.set(context, enqueue);
    return new Promise((resolve, reject) =>
      enqueue({ item, since: performance.now(), resolve, reject }),
    );
  };
}

function createBatch<Context, Item, Result>(
  context: Context,
  run: Run<Context, Item, Result>,
  options: Options<Item>,
): (call: Call<Item, Result>) => void {
  type Waiting = Call<Item, Result>;
  const createQueue = (lock: string | null): Queue<Waiting> => ({
    calls: [],
    lock,
    senders: 0,
    isGathering: false,
  });
  const main = createQueue(null);
  const locked = new Map<string | null, Queue<Waiting>>(); // by lock, after it has stopped a statement
  const lockOf = ({ item }: Waiting) => options.lockOf?.(item) ?? options.keyOf?.(item) ?? null;

  function enqueue(call: Waiting): void {
    const queue = (locked.size > 0 && locked.get(lockOf(call))) || main;
    if (queue.calls.length >= MAX_WAITING) return call.reject(overloaded());
    queue.calls.push(call);
    void sendAll(queue);
  }

  async function sendAll(queue: Queue<Waiting>): Promise<void> {
    const { calls, lock } = queue;
    if (queue.isGathering || queue.senders === (lock === null ? MAX_UNDER_WAY : 1)) return;
    queue.senders += 1;
    while (calls.length > 0 && !queue.isGathering) {
      // Waits to the end of this turn of the event loop, and on while each turn brings more.
      queue.isGathering = true;
      let before = 0;
      for (
        let turns = 0;
        turns < MAX_TURNS && calls.length > before && calls.length < MAX_ITEMS;
        turns += 1
      ) {
        before = calls.length;
        await endOfTurn();
      }
      queue.isGathering = false;
      const sent = send(take(calls), lock === null ? 'try' : 'wait');
      if (calls.length > 0) void sendAll(queue);
      await sent;
    }
    queue.senders -= 1;
    if (queue !== main) locked.delete(lock);
  }

  async function send(calls: Waiting[], locks?: Locks): Promise<void> {
    if (calls.length === 0) return;
    try {
      const results = await run(
        context,
        calls.map(({ item }) => item),
        locks,
      );
      if (results.length !== calls.length)
        throw new Error('internal error: one result for each item');
      for (const [index, result] of results.entries()) calls[index]?.resolve(result);
    } catch (error) {
      const isRejected =
        calls.length > 1 && (error instanceof Rejected || error instanceof Duplicate);
      // Neither is awaited: the next statement does not wait for a lock.
      if (isRejected) for (const call of calls) void send([call]);
      else if (error instanceof Locked && locks === 'try') separate(calls);
      else for (const call of calls) call.reject(error);
    }
  }

  /** Calls that need the same lock stay together: waiting for it separately would take a commit for each. */
  function separate(calls: Waiting[]): void {
    for (const call of calls) {
      const lock = lockOf(call);
      if (lock !== null && !locked.has(lock)) locked.set(lock, createQueue(lock));
      if (lock === null) void send([call], 'wait');
      else enqueue(call);
    }
    for (const call of main.calls.splice(0)) enqueue(call); // they may need one of these locks, too
  }

  /** Removes the calls of the next statement, in the order in which they came. */
  function take(queue: Waiting[]): Waiting[] {
    const oldest = performance.now() - MAX_WAIT_MS;
    const next: Waiting[] = [];
    const keys = new Set<string | null>();
    let bytes = 0;
    for (const call of queue.splice(0)) {
      const key = options.keyOf?.(call.item) ?? null;
      bytes += options.bytesOf?.(call.item) ?? 0;
      const hasRoom =
        next.length < MAX_ITEMS && bytes <= MAX_BYTES && (key === null || !keys.has(key));
      if (call.since <= oldest) call.reject(overloaded());
      else (next.length === 0 || hasRoom ? next : queue).push(call);
      keys.add(key);
    }
    return next;
  }

  return enqueue;
}

const overloaded = () => new Overloaded('too many calls wait for a shared database statement');

/** An array in PostgreSQL's text form: one parameter, and so one prepared statement, for any number of values. */
export function arrayLiteral(
  values: ReadonlyArray<string | Buffer | Date | number | null>,
): string {
  const items = values.map((value) => {
    if (value === null) return 'NULL';
    if (typeof value === 'number') return String(value);
    if (Buffer.isBuffer(value)) return `"\\\\x${value.toString('hex')}"`;
    return value instanceof Date ? value.toISOString() : `"${value.replace(/["\\]/g, '\\$&')}"`;
  });
  return `{${items.join()}}`;
}

/** The same for at least one value in hexadecimal. */
export const hexArrayLiteral = (values: readonly string[]): string =>
  `{"\\\\x${values.join('","\\\\x')}"}`;

/** One row, or null, for each key, in their order. @param rows emptied, so that the driver does not keep them alive */
export function alignToKeys<Row>(
  keys: readonly string[],
  rows: Row[],
  keyOf: (row: Row) => string,
): Array<Row | null> {
  const found = new Map<string, Row>();
  for (const row of rows.splice(0)) found.set(keyOf(row), row);
  return keys.map((key) => found.get(key) ?? null);
}

import { setImmediate as endOfTurn } from 'node:timers/promises';
import { Overloaded } from '../runtime/errors.ts';
import { Duplicate, Locked, Rejected } from './errors.ts';
import type { Locks } from './pool.ts';

/** Per statement. With more, half the callers would wait while the database works for all. */
const MAX_ITEMS = 32;
const MAX_BYTES = 1024 * 1024; // per statement
/** Statements of one kind. One is prepared while the database works on the other. */
const MAX_UNDER_WAY = 2;
/** How many turns of the event loop a statement waits for more items. */
const MAX_TURNS = 3;
const MAX_WAITING = 1_024; // calls of one queue
/** A call that has waited this long is rejected, and its work is not done. */
const MAX_WAIT_MS = 10_000;

interface Options<Item> {
  /** Items with the same key, if not null, never share a statement. */
  readonly keyOf?: (item: Item) => string | null;
  /** The key of a lock that an item may wait for, if not null. By default the key of `keyOf`. */
  readonly lockOf?: (item: Item) => string | null;
  readonly bytesOf?: (item: Item) => number;
}

type Call<Item, Result> = Readonly<{
  item: Item;
  since: number;
  resolve: (result: Result) => void;
  reject: (error: unknown) => void;
}>;

/**
 * @param lock that its calls wait for; null for the queue of all others
 * @returns the queue. `senders` counts statements under way or being gathered
 */
function createQueue<Item, Result>(lock: string | null) {
  const calls: Array<Call<Item, Result>> = [];
  return {
    calls,
    lock,
    senders: 0,
    isGathering: false,
  };
}

type Run<Context, Item, Result> = (
  context: Context,
  items: readonly Item[],
  locks?: Locks,
) => Promise<readonly Result[]>;

/**
 * Lets calls that arrive together share one statement: one round trip, and for a write one flush to
 * disk. Two are under way at a time, in order over one connection; meanwhile, items for the next
 * one gather. Nothing is cached: a statement is sent only after all of its calls have arrived. Each
 * call gets the outcome of its own item, after the commit. If the database rejects a shared
 * statement, none of it was done, and each item is tried alone: only the invalid one fails. If a
 * lock stops it, the items that need the same lock are tried together: only they, and later ones
 * like them, wait.
 * @param run one statement for several items, with one result for each, in their order; `locks` is
 * for `Database.write`
 */
export function sharedStatement<Context extends object, Item, Result>(
  run: Run<Context, Item, Result>,
  options: Options<Item> = {},
) {
  const enqueuers = new WeakMap<Context, (call: Call<Item, Result>) => void>();
  return (context: Context, item: Item) => {
    const enqueue = enqueuers.get(context) ?? createEnqueue(context, run, options);
    enqueuers.set(context, enqueue);
    return new Promise<Result>((resolve, reject) => {
      enqueue({
        item,
        since: performance.now(),
        resolve,
        reject,
      });
    });
  };
}

/** @returns a function that adds a call to the next statement */
function createEnqueue<Context, Item, Result>(
  context: Context,
  run: Run<Context, Item, Result>,
  options: Options<Item>,
) {
  type Waiting = Call<Item, Result>;
  const main = createQueue<Item, Result>(null);
  const locked = new Map<string | null, typeof main>(); // by lock, after it stopped a statement
  const lockOf = ({ item }: Waiting) => options.lockOf?.(item) ?? options.keyOf?.(item) ?? null;
  const send = createSender(context, run, separate);

  function enqueue(call: Waiting) {
    const queue = locked.size > 0 ? (locked.get(lockOf(call)) ?? main) : main;
    if (queue.calls.length >= MAX_WAITING) {
      call.reject(overloaded());
      return;
    }
    queue.calls.push(call);
    void sendAll(queue);
  }

  async function sendAll(queue: typeof main) {
    const { calls, lock } = queue;
    const maxSenders = lock === null ? MAX_UNDER_WAY : 1;
    if (queue.isGathering || queue.senders === maxSenders) return;
    queue.senders += 1;
    while (calls.length > 0 && !queue.isGathering) {
      queue.isGathering = true;
      // Waits to the end of this turn of the event loop, and on while each turn brings more.
      let before = 0;
      for (let turn = 0; turn < MAX_TURNS; turn += 1) {
        if (calls.length === before || calls.length >= MAX_ITEMS) break;
        before = calls.length;
        await endOfTurn();
      }
      queue.isGathering = false;
      const { next, later, expired } = takeNext(calls.splice(0), options, performance.now());
      calls.push(...later);
      for (const call of expired) call.reject(overloaded());
      const sent = send(next, lock === null ? 'try' : 'wait');
      if (calls.length > 0) void sendAll(queue);
      await sent;
    }
    queue.senders -= 1;
    if (lock !== null) locked.delete(lock);
  }

  /** Calls that need the same lock stay together: alone, each would take a commit. */
  function separate(calls: readonly Waiting[]) {
    for (const call of calls) {
      const lock = lockOf(call);
      if (lock !== null && !locked.has(lock)) locked.set(lock, createQueue(lock));
      if (lock === null) void send([call], 'wait');
      else enqueue(call);
    }
    for (const call of main.calls.splice(0)) enqueue(call); // they may need these locks, too
  }

  return enqueue;
}

/**
 * Chooses the calls of the next statement, in the order in which they came.
 * @returns these, the calls that stay, and those that have waited too long
 */
export function takeNext<Item, Result>(
  calls: ReadonlyArray<Call<Item, Result>>,
  { keyOf, bytesOf }: Options<Item>,
  now: number,
) {
  const next: Array<Call<Item, Result>> = [];
  const later: typeof next = [];
  const expired: typeof next = [];
  /** Keys of all calls up to here: a later call does not overtake one with the same key. */
  const keys = new Set<string>();
  let bytes = 0;
  for (const call of calls) {
    if (call.since <= now - MAX_WAIT_MS) {
      expired.push(call);
      continue;
    }
    const key = keyOf?.(call.item) ?? null;
    bytes += bytesOf?.(call.item) ?? 0;
    const isRepeated = key !== null && keys.has(key);
    const hasRoom = next.length < MAX_ITEMS && bytes <= MAX_BYTES && !isRepeated;
    if (hasRoom || next.length === 0) next.push(call);
    else later.push(call);
    if (key !== null) keys.add(key);
  }
  return { next, later, expired };
}

/** @param separate gets the calls of a statement that a lock has stopped */
function createSender<Context, Item, Result>(
  context: Context,
  run: Run<Context, Item, Result>,
  separate: (calls: ReadonlyArray<Call<Item, Result>>) => void,
) {
  return async function send(calls: ReadonlyArray<Call<Item, Result>>, locks?: Locks) {
    if (calls.length === 0) return;
    try {
      const items = calls.map(({ item }) => item);
      const results = await run(context, items, locks);
      if (results.length !== calls.length) {
        throw new Error('internal error: one result for each item');
      }
      results.forEach((result, index) => calls[index]?.resolve(result));
    } catch (error) {
      const isInvalid = error instanceof Rejected || error instanceof Duplicate;
      // Neither is awaited: the next statement does not wait for a lock.
      if (isInvalid && calls.length > 1) for (const call of calls) void send([call]);
      else if (error instanceof Locked && locks === 'try') separate(calls);
      else for (const call of calls) call.reject(error);
    }
  };
}

const overloaded = () => new Overloaded('too many calls wait for a shared database statement');

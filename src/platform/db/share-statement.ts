import { setImmediate as endOfTurn } from 'node:timers/promises';
import { Overloaded } from '../runtime/errors.ts';
import { Duplicate, Locked, Rejected } from './errors.ts';
import type { Database, Sql } from './pool.ts';

/** Per statement. With more, half the callers would wait while the database works for all. */
const MAX_ITEMS = 32;
const MAX_BYTES = 1024 * 1024; // per statement
/** Statements of one kind. One is prepared while the database works on the other. */
const MAX_UNDER_WAY = 2;
/** How many turns of the event loop a statement waits for more items. */
const MAX_TURNS = 3;
const MAX_WAITING = 1_024; // calls of one kind
/** A call that has waited this long is rejected, and its work is not done. */
const MAX_WAIT_MS = 10_000;

type Options<Item> = Readonly<{
  /**
   * Of items with the same key, if not null, only one statement is under way: they may need the
   * same lock, and keep their order.
   */
  keyOf?: (item: Item) => string | null;
  /** Whether a statement takes only one item with the same key. */
  areKeysUnique?: boolean;
  bytesOf?: (item: Item) => number;
}>;

type Waiting = Readonly<{
  key: string | null;
  bytes: number;
  since: number;
  reject: (error: unknown) => void;
}>;
type Call<Item, Result> = Waiting & Readonly<{ item: Item; resolve: (result: Result) => void }>;

type Context = Database | Readonly<{ database: Database }>;

/**
 * Lets calls that arrive together share one statement: one round trip, and for a write one flush to
 * disk. Two are under way at a time; meanwhile, items for the next one gather. Nothing is cached: a
 * statement is sent only after all of its calls have arrived. Each call gets the outcome of its own
 * item, after the commit. If the database rejects a shared statement, or a lock stops it, none of
 * it was done, and each item is tried alone: only the invalid one fails, and only the locked one
 * waits.
 * @param run one statement for several items, with one result for each, in their order
 */
export function sharedStatement<Item, Result, C extends Context = Database>(
  kind: 'read' | 'write',
  run: (sql: Sql, items: readonly Item[], context: C) => Promise<readonly Result[]>,
  { keyOf, bytesOf, areKeysUnique = false }: Options<Item> = {},
) {
  const queues = new WeakMap<C, (call: Call<Item, Result>) => void>();

  function createQueueOf(context: C) {
    const given: Context = context;
    const database = 'database' in given ? given.database : given;
    return createQueue<Item, Result>((items) => {
      const isShared = kind === 'write' && items.length > 1;
      const send = isShared ? database.tryWrite : database[kind];
      return send((sql) => run(sql, items, context));
    }, areKeysUnique);
  }

  return (context: C, item: Item) => {
    const enqueue = queues.get(context) ?? createQueueOf(context);
    queues.set(context, enqueue);
    return new Promise<Result>((resolve, reject) => {
      enqueue({
        item,
        key: keyOf?.(item) ?? null,
        bytes: bytesOf?.(item) ?? 0,
        since: performance.now(),
        resolve,
        reject,
      });
    });
  };
}

/** @returns a function that adds a call to the next statement */
function createQueue<Item, Result>(
  run: (items: readonly Item[]) => Promise<readonly Result[]>,
  areKeysUnique: boolean,
) {
  type Calls = Array<Call<Item, Result>>;
  const waiting: Calls = [];
  /** Keys of the calls under way. */
  const busyKeys = new Set<string>();
  let underWay = 0;
  /** Whether calls are gathered for the next statement. */
  let isGathering = false;

  /** Sends a statement for the calls that wait, if it is not too early for one. */
  async function sendNext() {
    const isFree = underWay < MAX_UNDER_WAY && !isGathering;
    if (!isFree || waiting.length === 0) return;
    isGathering = true;
    await gather(waiting);
    isGathering = false;
    const next = takeNext(waiting, busyKeys, areKeysUnique);
    if (next.length === 0) return;
    underWay += 1;
    void sendNext(); // for those that it has left
    await send(next);
    underWay -= 1;
    void sendNext();
  }

  async function send(calls: Calls) {
    const keys = calls.flatMap(({ key }) => key ?? []);
    for (const key of keys) busyKeys.add(key);
    const failure = await attempt(calls).catch((error: unknown) => ({ error }));
    for (const key of keys) busyKeys.delete(key);
    if (!failure) return;
    const { error } = failure;
    if (calls.length === 1 || !isOfOneItem(error)) {
      for (const call of calls) call.reject(error);
      return;
    }
    const others = [...calls];
    // Not awaited: the next statement does not wait for a lock. Those with the same key wait.
    for (const call of takeNext(others, busyKeys, true)) void send([call]).then(sendNext);
    waiting.unshift(...others);
  }

  async function attempt(calls: Calls) {
    const results = await run(calls.map(({ item }) => item));
    if (results.length !== calls.length)
      throw new Error('internal error: one result for each item');
    results.forEach((result, index) => calls[index]?.resolve(result));
  }

  return (call: Call<Item, Result>) => {
    if (waiting.length >= MAX_WAITING) return call.reject(overloaded());
    waiting.push(call);
    void sendNext();
  };
}

/** Waits to the end of this turn of the event loop, and on while each turn brings more calls. */
async function gather(calls: readonly unknown[]) {
  let before = 0;
  for (let turn = 0; turn < MAX_TURNS; turn += 1) {
    if (calls.length === before || calls.length >= MAX_ITEMS) return;
    before = calls.length;
    await endOfTurn();
  }
}

/**
 * Takes the calls of the next statement from those that wait, in the order in which they came. A
 * call does not overtake one with the same key.
 */
export function takeNext<C extends Waiting>(
  waiting: C[],
  busyKeys: ReadonlySet<string>,
  areKeysUnique: boolean,
) {
  const next: C[] = [];
  const blockedKeys = new Set(busyKeys);
  const oldest = performance.now() - MAX_WAIT_MS;
  let bytes = 0;
  for (const call of waiting.splice(0)) {
    if (call.since <= oldest) {
      call.reject(overloaded());
      continue;
    }
    const { key } = call;
    const isBlocked = key !== null && blockedKeys.has(key);
    if (!isBlocked) bytes += call.bytes;
    const hasRoom = next.length < MAX_ITEMS && bytes <= MAX_BYTES;
    const isTaken = (hasRoom || next.length === 0) && !isBlocked;
    (isTaken ? next : waiting).push(call);
    if (key !== null && (areKeysUnique || !isTaken)) blockedKeys.add(key);
  }
  return next;
}

const isOfOneItem = (error: unknown) =>
  error instanceof Rejected || error instanceof Duplicate || error instanceof Locked;

const overloaded = () => new Overloaded('too many calls wait for a shared database statement');

import { Overloaded } from '../runtime/errors.ts';
import { Duplicate, Rejected } from './pool.ts';

/** Items of one statement. More would make the first wait for the last, and gain little. */
const MAX_ITEMS = 128;
/** And of so many bytes together: what is sent exists three times meanwhile, as bytes, as text and in the socket. */
const MAX_BYTES = 1024 * 1024;
/** How many turns of the event loop a statement waits for more to share it. */
const MAX_TURNS = 3;
/** Who comes when so many wait is refused, and who has waited for so long: nobody listens any more for what is done later. */
const MAX_WAITING = 1_024;
const MAX_WAIT_MS = 10_000;

interface Rules<Item> {
  /** Items with the same key never share a statement; null for those that may. */
  readonly keyOf?: (item: Item) => string | null;
  readonly bytesOf?: (item: Item) => number;
}

interface Caller<Item, Result> {
  readonly item: Item;
  readonly since: number;
  readonly resolve: (result: Result) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Lets callers that come at about the same time share one statement: one round trip, and for a write one flush to disk,
 * which is most of its cost. One statement is under way at a time, and while it is, more items gather: the busier it is,
 * the more share one. Nothing is remembered: each statement is sent after the last of its callers has asked, so
 * each sees what it would have seen alone.
 *
 * A caller gets the outcome of its own item, and a success only after the commit. When the database refuses what a
 * shared statement brings, nothing of it was done, and each item is tried alone, so that only the wrong one fails. When
 * the connection ends, all fail, as each would have alone. Who leaves is not taken out: what was asked for is done.
 * @param run one statement for several items @returns one result for each, in their order
 */
export function batched<Context extends object, Item, Result>(
  run: (context: Context, items: readonly Item[]) => Promise<readonly Result[]>,
  rules: Rules<Item> = {},
): (context: Context, item: Item) => Promise<Result> {
  const groups = new WeakMap<Context, (item: Item) => Promise<Result>>();
  return (context, item) => {
    let group = groups.get(context);
    if (!group) groups.set(context, (group = createGroup((items) => run(context, items), rules)));
    return group(item);
  };
}

function createGroup<Item, Result>(run: (items: readonly Item[]) => Promise<readonly Result[]>, rules: Rules<Item>): (item: Item) => Promise<Result> {
  let waiting: Array<Caller<Item, Result>> = [];
  /** Whether a statement is under way, or about to be. */
  let isBusy = false;

  function plan(): void {
    if (isBusy || waiting.length === 0) return;
    isBusy = true;
    gather(waiting.length, MAX_TURNS);
  }

  /** To the end of this turn of the event loop, and on while each turn brings more. */
  function gather(before: number, turns: number): void {
    setImmediate(() => (turns > 1 && waiting.length > before && waiting.length < MAX_ITEMS ? gather(waiting.length, turns - 1) : begin()));
  }

  function begin(): void {
    const since = performance.now() - MAX_WAIT_MS;
    const [now, later] = divide(waiting.filter((caller) => caller.since > since || turnAway(caller)), rules);
    waiting = later;
    void send(now).then(() => {
      isBusy = false;
      plan();
    });
  }

  async function send(callers: ReadonlyArray<Caller<Item, Result>>): Promise<void> {
    if (callers.length === 0) return;
    try {
      const results = await run(callers.map(({ item }) => item));
      if (results.length !== callers.length) throw new Error('internal error: there is a result for each item');
      results.forEach((result, index) => callers[index]?.resolve(result));
    } catch (error) {
      const isOfOne = callers.length > 1 && (error instanceof Rejected || error instanceof Duplicate);
      if (isOfOne) await Promise.all(callers.map((caller) => send([caller])));
      else for (const caller of callers) caller.reject(error);
    }
  }

  return (item) =>
    new Promise((resolve, reject) => {
      if (waiting.length >= MAX_WAITING) return turnAway({ reject });
      waiting.push({ item, since: performance.now(), resolve, reject });
      plan();
    });
}

function turnAway({ reject }: Pick<Caller<unknown, unknown>, 'reject'>): void {
  reject(new Overloaded('too many are waiting for a shared statement of the database'));
}

/** Who goes now and who later, in the order in which they came. */
function divide<Item, Result>(
  waiting: ReadonlyArray<Caller<Item, Result>>,
  { keyOf = () => null, bytesOf = () => 0 }: Rules<Item>,
): [now: Array<Caller<Item, Result>>, later: Array<Caller<Item, Result>>] {
  const now: Array<Caller<Item, Result>> = [];
  const later: Array<Caller<Item, Result>> = [];
  const keys = new Set<string>();
  let bytes = 0;
  for (const caller of waiting) {
    const key = keyOf(caller.item);
    bytes += bytesOf(caller.item);
    const fits = now.length === 0 || (now.length < MAX_ITEMS && bytes <= MAX_BYTES && !(key !== null && keys.has(key)));
    (fits ? now : later).push(caller);
    if (key !== null) keys.add(key);
  }
  return [now, later];
}

/** Values of one column as PostgreSQL reads an array from a text, so that one statement serves any number of items. */
export function arrayLiteral(values: ReadonlyArray<string | Buffer | Date | number | null>): string {
  const items = values.map((value) => {
    if (value === null) return 'NULL';
    if (typeof value === 'number') return String(value);
    if (Buffer.isBuffer(value)) return written(value.toString('hex'));
    return value instanceof Date ? value.toISOString() : `"${value.replace(/["\\]/g, '\\$&')}"`;
  });
  return `{${items.join()}}`;
}

const written = (digits: string) => `"\\\\x${digits}"`;
/** The same for bytes that are in hexadecimal digits already. */
export const hexArrayLiteral = (all: readonly string[]): string => `{${all.map(written).join()}}`;

/**
 * One row, or null, for each key, in the order of the keys. Who asks with the same key gets the same row.
 * @param rows emptied here: the driver's functions that end a statement are made where V8 keeps what is old, and hold on to
 * statement and rows until V8 goes through all of that
 */
export function alignToKeys<Row>(keys: readonly string[], rows: Row[], keyOf: (row: Row) => string): Array<Row | null> {
  const found = new Map<string, Row>();
  for (const row of rows.splice(0)) found.set(keyOf(row), row);
  return keys.map((key) => found.get(key) ?? null);
}

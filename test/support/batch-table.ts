/**
 * A small table, and statements that callers share to fill it: for tests of grouped statements by
 * themselves.
 */
import type { Sql } from 'postgres';
import { sharedStatement } from '../../src/platform/db/share-statement.ts';
import { arrayLiteral } from '../../src/platform/db/sql.ts';
import { createWaits, type Hold, holdStatements } from './hold.ts';

export interface Thing {
  readonly id: number;
  /** None like another. */
  readonly name?: string;
  /** Greater than 0 and at most 32,767, or the database refuses it. */
  readonly size?: number;
  /** What it counts for against the limit of bytes, and what its key is. */
  readonly bytes?: number;
  readonly key?: string;
}

export async function makeThings(sql: Sql): Promise<void> {
  await createWaits(sql);
  await sql`
    create table things (
      place integer generated always as identity,
      id integer constraint things_id unique,
      name text constraint things_name unique,
      size smallint constraint things_size check (size > 0)
    )`;
  await sql`
    create function wait_if_held() returns trigger language plpgsql as
      'begin perform wait_for(new.id); return new; end'`;
  await sql`create trigger holding before insert on things for each row execute function wait_if_held()`;
}

/**
 * Stores things, and writes down which went by one statement. What a caller is told is made by the
 * database from its own thing.
 */
export function storing({ areKeysUnique = false } = {}) {
  const statements: number[][] = [];
  const store = sharedStatement(
    'write',
    async (sql, things: readonly Thing[]): Promise<string[]> => {
      statements.push(things.map(({ id }) => id));
      const ids = arrayLiteral(things.map(({ id }) => String(id)));
      const names = arrayLiteral(things.map(({ name }) => name ?? null));
      const sizes = arrayLiteral(things.map(({ size }) => String(size ?? 1)));
      const rows = await sql<Array<{ id: number; told: string }>>`
        insert into things (id, name, size)
        select id, name, size from unnest(${ids}::text::integer[], ${names}::text::text[],
          ${sizes}::text::smallint[]) with ordinality as given (id, name, size, nth) order by nth
        returning id, id || ' of size ' || size as told`;
      const told = new Map(rows.map((row) => [row.id, row.told]));
      return things.map(({ id }) => told.get(id) ?? 'nothing');
    },
    { keyOf: ({ key }) => key ?? null, bytesOf: ({ bytes }) => bytes ?? 0, areKeysUnique },
  );
  return { store, statements };
}

let things = 0;

/** So many things, with ids of their own. */
export const someThings = (count: number, more: Partial<Thing> = {}): Thing[] =>
  Array.from({ length: count }, () => {
    things += 1;
    return { ...more, id: things };
  });
export const idsOf = (list: readonly Thing[]): number[] => list.map(({ id }) => id);

/** What is stored of these, in the order in which it was. */
export async function stored(sql: Sql, list: readonly Thing[]): Promise<number[]> {
  return (
    await sql<
      Array<{ id: number }>
    >`select id from things where id in ${sql(idsOf(list))} order by place`
  ).map(({ id }) => id);
}

/** Every statement that stores this thing waits until this is released. */
export const blockThing = (
  owner: { after(fn: () => Promise<void>): void },
  url: string,
  { id }: Thing,
): Promise<Hold> => holdStatements(owner, url, id);

/** How each ended: what it was told, or the error. */
export type Outcome = string | Error;
export const outcomeOf = (work: Promise<string>): Promise<Outcome> =>
  work.catch((error: unknown) => (error instanceof Error ? error : new Error(String(error))));
export const outcomesOf = (calls: ReadonlyArray<Promise<string>>): Promise<Outcome[]> =>
  Promise.all(calls.map(outcomeOf));

/** What the callers of these are told. */
export const told = (list: readonly Thing[]): string[] =>
  list.map(({ id, size }) => `${id} of size ${size ?? 1}`);

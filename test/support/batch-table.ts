/** A small table, and statements that callers share to fill it. */
import type { Sql } from 'postgres';
import { sharedStatement } from '../../src/platform/db/share-statement.ts';
import { jsonRows } from '../../src/platform/db/sql.ts';
import { createWaits } from './hold.ts';

export interface Thing {
  readonly id: number;
  readonly name?: string;
  /** From 1 to 32,767, or the database refuses it. */
  readonly size?: number;
  /** What it counts for against the limit of bytes, and what its key is. */
  readonly bytes?: number;
  readonly key?: string;
}

/** To insert a thing waits while its id is held by `holdStatements`. */
export async function makeThings(sql: Sql) {
  await createWaits(sql);
  await sql.unsafe(`
    create table things (
      place integer generated always as identity,
      id integer constraint things_id unique,
      name text constraint things_name unique,
      size smallint constraint things_size check (size > 0)
    );
    create function wait_if_held() returns trigger language plpgsql as
      'begin perform wait_for(new.id); return new; end';
    create trigger holding before insert on things for each row execute function wait_if_held()`);
}

/** Stores things, and notes the ids of each statement. The database makes what a caller is told. */
export function storing({ areKeysUnique = false } = {}) {
  const statements: number[][] = [];
  const store = sharedStatement(
    'write',
    async (sql, things: readonly Thing[]) => {
      statements.push(idsOf(things));
      const rows = await sql<Array<{ id: number; told: string }>>`
        insert into things (id, name, size)
        select id, name, coalesce(size, 1)
        from rows from (json_to_recordset(${jsonRows(things)}::text::json)
          as (id integer, name text, size integer)) with ordinality order by ordinality
        returning id, id || ' of size ' || size as told`;
      return things.map(({ id }) => rows.find((row) => row.id === id)?.told ?? 'nothing');
    },
    { keyOf: ({ key }) => key ?? null, bytesOf: ({ bytes }) => bytes ?? 0, areKeysUnique },
  );
  return { store, statements };
}

let things = 0;

/** A thing with an id of its own. */
export function oneThing(more: Partial<Thing> = {}): Thing {
  things += 1;
  return { ...more, id: things };
}
export const someThings = (count: number, more: Partial<Thing> = {}) =>
  Array.from({ length: count }, () => oneThing(more));
export const idsOf = (list: readonly Thing[]) => list.map(({ id }) => id);

/** What the callers of these are told. */
export const told = (list: readonly Thing[]) =>
  list.map(({ id, size }) => `${id} of size ${size ?? 1}`);

/** What is stored of these, in the order in which it was. */
export async function stored(sql: Sql, list: readonly Thing[]) {
  const rows = await sql<Array<{ id: number }>>`
    select id from things where id in ${sql(idsOf(list))} order by place`;
  return idsOf(rows);
}

/** How each ended: what it was told, or the error. */
export const outcomesOf = (calls: ReadonlyArray<Promise<string>>) =>
  Promise.all(calls.map((call) => call.catch((error: unknown) => error)));

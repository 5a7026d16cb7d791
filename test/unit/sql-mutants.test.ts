/** What `make mutants` drops from the SQL of a file. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findSqlMutants } from '../../scripts/mutants/sql.ts';

/** The statement after each change, on one line. */
function changesOf(statement: string): string[] {
  const text = `const find = sql\`${statement}\`;`;
  return findSqlMutants(text).map(({ from, to, replacement }) =>
    (text.slice(0, from) + replacement + text.slice(to))
      .slice('const find = sql`'.length, -'`;'.length)
      .replace(/\s+/g, ' ')
      .trim(),
  );
}

test('each conjunct of a condition is dropped', () => {
  assert.deepEqual(changesOf('delete from a where x = ${y}\n  and z\n  and not (u) returning id'), [
    'delete from a where z and not (u) returning id',
    'delete from a where x = ${y} and not (u) returning id',
    'delete from a where x = ${y} and z returning id',
  ]);
});

test('a condition alone becomes true', () => {
  assert.deepEqual(changesOf('select count(*) filter (where x) from a where y limit 1'), [
    'select count(*) filter (where true ) from a where y limit 1',
    'select count(*) filter (where x) from a where true limit 1',
  ]);
  assert.deepEqual(changesOf('insert into a on conflict (b) do update set c = 1 where a.c = 0'), [
    'insert into a on conflict (b) do update set c = 1 where true',
  ]);
  assert.deepEqual(changesOf('select case when x then y else z end'), [
    'select case when true then y else z end',
  ]);
});

test('each alternative is dropped, with its conjuncts', () => {
  assert.deepEqual(changesOf('select from a where x and (y or z and u)'), [
    'select from a where (y or z and u)',
    'select from a where x',
    'select from a where x and ( z and u)',
    'select from a where x and (y )',
    'select from a where x and (y or u)',
    'select from a where x and (y or z )',
  ]);
});

test('the bounds of between, and a distinct from, stay together', () => {
  assert.deepEqual(changesOf('select from a where x between 1 and 2 and y is distinct from z'), [
    'select from a where y is distinct from z',
    'select from a where x between 1 and 2',
  ]);
});

test('conditions in parts of statements, and in statements inside of one, are found', () => {
  assert.deepEqual(changesOf('not a.x\n  and ${y}'), ['${y}', 'not a.x']);
  assert.deepEqual(changesOf('and ${y}'), ['']);
  assert.deepEqual(changesOf('select ${z ? sql`x` : sql`y or z`} from a'), [
    'select ${z ? sql`x` : sql` z`} from a',
    'select ${z ? sql`x` : sql`y `} from a',
  ]);
});

test('a mutant has the line and the declaration of its condition', () => {
  const text = 'export const find = () =>\n  sql`\n    select from a\n    where b and c`;';
  const found = findSqlMutants(text);
  assert.deepEqual(
    found.map(({ line, within, dropped }) => [line, within, dropped]),
    [
      [4, 'find', 'b and'],
      [4, 'find', 'and c'],
    ],
  );
});

test('text that is no SQL is left alone', () => {
  assert.deepEqual(findSqlMutants('const x = `this and that`; const y = "a and b";'), []);
});

/** Bodies in the database: each byte as it was sent, and how they are compressed. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seeded } from '../../support/random.ts';
import { openWorkQueue } from '../../support/webhook-store.ts';

test('bodies that share statements are stored byte for byte', async (t) => {
  const { put, sql } = await openWorkQueue(t);
  const int = seeded(7);
  const parts = ['a', ' ', '\n', '\\u0061', '\\\\', '\\"', 'é', '€', '😀', '\ufeff', '\u2028'];
  const bodies = Array.from({ length: 200 }, (_, number) => {
    const length = int(4) === 0 ? int(20_000) : int(20);
    const text = Array.from({ length }, () => parts[int(parts.length)] ?? '').join('');
    return Buffer.from(`{"event":"a","data":{"page_id":"${number}"}, "text":"${text}"}`);
  });
  const ids = await Promise.all(bodies.map((body) => put({ body })));
  const rows = await sql`select id, body, xmin::text as commit from webhook.events`;
  const stored = new Map(rows.map(({ id, body }) => [id, body]));
  for (const [index, id] of ids.entries()) {
    assert.ok(bodies[index]?.equals(stored.get(id)), String(index));
  }
  const commits = new Set(rows.map(({ commit }) => commit));
  // Statements that wait for a lock, as for the end of the file of a table, are done alone.
  assert.ok(commits.size < bodies.length / 2, `${commits.size} commits`);
});

test('a body is compressed by LZ4 where PostgreSQL has it, otherwise by pglz', async (t) => {
  const { put, sql } = await openWorkQueue(t);
  await put({
    body: Buffer.from(JSON.stringify({ event: 'a', data: { text: 'a'.repeat(9_000) } })),
  });
  const [row] = await sql`
    select pg_column_compression(body) as method,
      (select 'lz4' = any (enumvals) from pg_settings where name = 'default_toast_compression')
        as has_lz4
    from webhook.events`;
  assert.equal(row?.method, row?.has_lz4 ? 'lz4' : 'pglz');
});

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { expireSecrets } from '../../../src/secrets/store/secrets.ts';
import { openConnections, untilLocked } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, launch } from '../../support/gatehouse.ts';
import { onOneServer } from '../../support/one-server.ts';

const { sql, metrics, log, runJobs } = await launch(['secrets']);
beforeEach(() => sql`truncate secrets.secrets`);

/** Rows of one kind, named by their key id: when they expire, and how they ended. */
type Ending = 'read' | 'deleted' | 'expired' | null;
const insert = (
  kind: string,
  rows: number,
  expiry: string | null,
  ending: Ending = null,
  endedAt: string | null = null,
  into = sql,
) => into`
  insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at, max_reads, ending,
    ended_at)
  select gen_random_uuid(), ${kind}, '\\x00', b, b, now() + ${expiry}::interval, 1, ${ending},
    now() + ${endedAt}::interval
  from generate_series(1, ${rows}), (
    select case when ${ending}::text is null then '\\x00'::bytea end as b) content`;

test('housekeeping removes the content of expired secrets only, and reports each once', async () => {
  await insert('never expires', 3, null);
  await insert('expires in a minute', 3, '1 minute');
  await insert('expired', 1_200, '-1 second');
  await insert('read up', 3, '-1 minute', 'read', '-2 minutes');
  for (let turn = 0; turn < 2; turn += 1) await runJobs(/empty expired secrets/);
  const rows = await sql`
    select key_id, ending, count(*)::int as rows, count(blob)::int + count(tag)::int as parts,
      bool_and(ended_at = expires_at) as at_expiry
    from secrets.secrets group by key_id, ending order by key_id`;
  assert.deepEqual(
    [...rows],
    [
      { key_id: 'expired', ending: 'expired', rows: 1_200, parts: 0, at_expiry: true },
      { key_id: 'expires in a minute', ending: null, rows: 3, parts: 6, at_expiry: null },
      { key_id: 'never expires', ending: null, rows: 3, parts: 6, at_expiry: null },
      { key_id: 'read up', ending: 'read', rows: 3, parts: 0, at_expiry: false },
    ],
  );
  const logged = log().filter(({ message }) => message === 'secret expired');
  const ids = new Set(logged.map(({ secret_id }) => secret_id));
  assert.deepEqual([logged.length, ids.size], [1_200, 1_200]);
  assert.ok(logged.every(({ level, key_id }) => level === 'info' && key_id === 'expired'));
  const { text } = await ask('GET', `${metrics}/metrics`);
  assert.match(text, /^gatehouse_secret_events_total\{event="expired"\} 1200$/m);
});

test('two replicas report the expiry of a secret once', onOneServer, async (t) => {
  // No service runs its own jobs there.
  const own = await createDatabase(t);
  await insert('expired', 20, '-1 second', null, null, own.sql);
  const replicas = [1, 2].map((n) => openConnections(t, own.url, `replica-${n}`));
  let batches: Array<ReturnType<typeof expireSecrets>> = [];
  await own.sql.begin(async (held) => {
    await held`select from secrets.secrets for update`;
    batches = replicas.map((replica) => expireSecrets(replica, 100));
    await untilLocked(held, 2);
  });
  const reported = (await Promise.all(batches)).flat().map(({ id }) => id);
  assert.deepEqual([reported.length, new Set(reported).size], [20, 20]);
});

test('receipts are removed RECEIPT_RETENTION after the end of their secret', async () => {
  await insert('readable', 3, null);
  await insert('expired just now', 3, '-1 second');
  await insert('read 29 days ago', 3, null, 'read', '-29 days');
  await insert('deleted 29 days ago', 3, '-3 days', 'deleted', '-29 days');
  await insert('read 31 days ago', 1_200, null, 'read', '-31 days');
  await insert('expired 31 days ago', 3, '-31 days', 'expired', '-31 days');
  await runJobs(/remove from secrets.secrets/);
  const left = await sql`select key_id || ' ' || count(*) as kind from secrets.secrets
    group by key_id order by key_id`;
  const kinds = left.map(({ kind }) => kind);
  const kept = ['deleted 29 days ago 3', 'expired just now 3', 'read 29 days ago 3', 'readable 3'];
  assert.deepEqual(kinds, kept);
});

test('housekeeping removes requests after the time for receipts, and no other ones', async () => {
  const request = (title: string, expiry: string, ending: string | null) => sql`
    insert into secrets.requests (id, key_id, tag, kind, title, public_key, digest, key_digest,
      max_reads, seconds, expires_at, ending, answer_key)
    values (gen_random_uuid(), '', ${ending === 'withdrawn' ? null : Buffer.alloc(32)}, 'text',
      ${title}, '', '', '', 1, 60, now() + ${expiry}::interval, ${ending},
      ${ending === 'answered' ? 'x' : null})`;
  await request('open', '1 hour', null);
  await request('expired', '-29 days', null);
  await request('answered', '1 hour', 'answered');
  await request('expired long ago', '-31 days', null);
  await request('answer expired long ago', '-31 days', 'answered');
  await request('withdrawn long ago', '-31 days', 'withdrawn');
  await runJobs(/remove from secrets.requests/);
  const left = await sql`select title from secrets.requests order by title`;
  const titles = left.map(({ title }) => title);
  assert.deepEqual(titles, ['answered', 'expired', 'open']);
});

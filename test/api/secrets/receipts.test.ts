/**
 * Receipts of secrets, and deletion. A read and its receipt are one statement: if it fails, nothing
 * is returned.
 */
import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { keepExpired } from '../../support/expired.ts';
import { type Answer, launch } from '../../support/gatehouse.ts';
import { secretsClient, storedSecret, wrongKey } from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const { sql, secrets: base, runJobs } = await launch(['secrets']);
const { encrypt, keep, decrypt, list, receipt, remove } = secretsClient(base);
const empty = () => runJobs(/empty expired secrets/);

/** The columns that each statement changed, recorded by a trigger. */
await sql`create table changes (columns text[])`;
await sql.unsafe(`
  create function note_change() returns trigger language plpgsql as $$ begin
    insert into public.changes (columns)
    select array_agg(key order by key)
      from jsonb_each(to_jsonb(new)) one join jsonb_each(to_jsonb(old)) other using (key)
      where one.value <> other.value;
    return null;
  end $$`);
await sql`create trigger note_change after update on secrets.secrets
  for each row execute function note_change()`;

const clock = async () =>
  Number((await sql`select date_trunc('milliseconds', clock_timestamp()) as now`)[0]?.now);

const receiptOf = async (id: string) => (await receipt(id)).json;
async function summary(id: string): Promise<unknown[]> {
  const { status, max_reads, reads, failed_reads } = await receiptOf(id);
  return [status, max_reads, reads, failed_reads];
}
/** A secret that has ended in another way is not deleted, and keeps its receipt. */
async function assertNotDeleted(id: string): Promise<void> {
  const before = await receiptOf(id);
  const { status, json } = await remove(id);
  assert.deepEqual([status, json.error.code], [404, 'not_found']);
  assert.deepEqual(await receiptOf(id), before);
}

test('receipt: exactly these members, and the status stored, for a new secret; nothing changes', async () => {
  const before = await clock();
  const { id, expires_at } = await keep(TEXT, { max_reads: 3, expires_in: 600 });
  const row = await storedSecret(sql, id);
  const { status, text, json } = await receipt(id.toUpperCase());
  const { created_at } = json;
  const counts = { max_reads: 3, reads: 0, last_read_at: null, failed_reads: 0 };
  const expected = { id, status: 'stored', created_at, expires_at, ...counts };
  assert.deepEqual([status, text], [200, JSON.stringify(expected)]);
  assert.equal(new Date(created_at).toISOString(), created_at);
  assert.ok(Date.parse(created_at) >= before && Date.parse(created_at) <= (await clock()));
  assert.deepEqual(await storedSecret(sql, id), row);
});

test('receipt: stored until the last read, then read; wrong keys are counted throughout', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 2 });
  const lastRead = async () => Date.parse((await receiptOf(id)).last_read_at);
  await decrypt(id, wrongKey());
  assert.deepEqual(await summary(id), ['stored', 2, 0, 1]);
  const before = await clock();
  await decrypt(id, secret);
  assert.deepEqual(await summary(id), ['stored', 2, 1, 1]);
  const first = await lastRead();
  assert.ok(first >= before && first <= (await clock()));
  await decrypt(id, secret);
  const last = await lastRead();
  for (const key of [secret, wrongKey(), 'no key'])
    assert.equal((await decrypt(id, key)).status, 404);
  assert.deepEqual(await summary(id), ['read', 2, 2, 4]);
  assert.equal(await lastRead(), last, 'a failed read does not count as a read');
  await assertNotDeleted(id);
  await sql`update secrets.secrets set expires_at = now() where id = ${id}`;
  await empty();
  assert.deepEqual(await summary(id), ['read', 2, 2, 4], 'also after the expiry');
});

test('receipt: expired before and after housekeeping, with or without max_reads', async () => {
  for (const max_reads of [null, 2]) {
    const { id, secret } = await keepExpired(sql, max_reads);
    assert.equal((await decrypt(id, secret)).status, 404);
    assert.deepEqual(await summary(id), ['expired', max_reads, 0, 1]);
    await assertNotDeleted(id);
    const before = await receiptOf(id);
    await empty();
    assert.deepEqual(await receiptOf(id), before);
    const { blob, tag, ending } = await storedSecret(sql, id);
    assert.deepEqual([blob, tag, ending], [null, null, 'expired']);
    assert.equal((await decrypt(id, secret)).status, 404);
    assert.deepEqual(await summary(id), ['expired', max_reads, 0, 2]);
    await assertNotDeleted(id);
  }
});

test('deletion: the secret does not open, is not listed, and its row has no content; a second one changes nothing', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 2 });
  await decrypt(id, secret);
  const { ended_at: _, ...before } = await storedSecret(sql, id);
  const { status, text } = await remove(id);
  assert.deepEqual([status, text], [200, `{"id":"${id}","status":"deleted"}`]);
  assert.deepEqual(await summary(id), ['deleted', 2, 1, 0]);
  assert.equal((await decrypt(id, secret)).status, 404);
  assert.ok(!(await list()).text.includes(id));
  const row = await storedSecret(sql, id);
  assert.ok(row.ended_at instanceof Date);
  const gone = { blob: null, tag: null, ending: 'deleted', failed_reads: '1' };
  assert.deepEqual(row, { ...before, ...gone, ended_at: row.ended_at });
  const second = await remove(id.toUpperCase());
  assert.deepEqual([second.status, second.text], [status, text]);
  assert.deepEqual(await storedSecret(sql, id), row);
});

// --- One statement

const changesBy = async (act: () => Promise<unknown>) => {
  await sql`delete from changes`;
  await act();
  return (await sql`select columns from changes`).map(({ columns }) => columns.join(' '));
};

/** Rejects rows that match a condition, like a disk that is full at the worst moment. */
const forbid = (condition: string) =>
  sql.unsafe(`alter table secrets.secrets add constraint forbidden check (${condition}) not valid`);
const allow = () => sql`alter table secrets.secrets drop constraint if exists forbidden`;
afterEach(allow);

/** Each request is 503 while such a row cannot be written, and changes nothing. */
async function assertUnavailable(
  id: string,
  condition: string,
  ...requests: ReadonlyArray<() => Promise<Answer>>
): Promise<void> {
  await forbid(condition);
  const before = [await storedSecret(sql, id), (await receipt(id)).text];
  for (const request of requests) {
    const { status, json, headers, text } = await request();
    assert.deepEqual([status, json.error.code], [503, 'unavailable'], text);
    assert.match(headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
    assert.ok(!text.includes(TEXT));
  }
  assert.deepEqual([await storedSecret(sql, id), (await receipt(id)).text], before);
  await allow();
}

test('each read, failed read and deletion is one change', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 2 });
  const other = await keep(TEXT);
  const ended = 'blob ended_at ending';
  for (const [act, changed] of [
    [() => decrypt(id, wrongKey()), 'failed_reads'],
    [() => decrypt(id, secret), 'last_read_at reads'],
    [() => decrypt(id, secret), `${ended} last_read_at reads tag`],
    [() => remove(other.id), `${ended} tag`],
  ] as const)
    assert.deepEqual(await changesBy(act), [changed]);
});

for (const [what, condition] of [
  ['the moment of the read', 'last_read_at is null'],
  ['the count of the read', 'reads = 0'],
  ['the end of the secret', 'ending is null'],
  ['that the content is gone', 'blob is not null and tag is not null'],
] as const) {
  test(`the last read is 503, without a change, if ${what} cannot be written`, async () => {
    const { id, secret } = await keep(TEXT, { max_reads: 1 });
    const read = () => decrypt(id, secret);
    await assertUnavailable(id, condition, read, read);
    assert.equal((await read()).json.password, TEXT);
    assert.equal((await receipt(id)).json.status, 'read');
  });
}

test('a new secret, a read without max_reads and a deletion are 503 if they cannot be recorded', async () => {
  const { id, secret } = await keep(TEXT);
  await assertUnavailable(id, 'ending is not null', () => encrypt({ password: TEXT }));
  await assertUnavailable(id, 'last_read_at is null', () => decrypt(id, secret));
  await assertUnavailable(id, `ending is distinct from 'deleted'`, () => remove(id));
  assert.equal((await decrypt(id, secret)).json.password, TEXT);
});

test('a failed read is 503 if it cannot be counted', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 1, passphrase: 'open sesame' });
  await assertUnavailable(
    id,
    'failed_reads = 0',
    () => decrypt(id, wrongKey()),
    () => decrypt(id, 'no key'),
    () => decrypt(id, secret, 'open says me'),
  );
  const counted = await sql`select attempts from secrets.throttles`;
  const attempts = counted.map((row) => row.attempts);
  assert.deepEqual(attempts, [1, 1], 'the wrong passphrase counts as an attempt');
  assert.equal((await decrypt(id, secret, 'open sesame')).json.password, TEXT);
});

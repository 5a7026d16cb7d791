/** A read and its receipt are one statement: if it fails, nothing is returned. */
import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { type Answer, launch } from '../../support/gatehouse.ts';
import { secretsClient, storedSecret, wrongKey } from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const { secrets, sql } = await launch(['secrets']);
const { keep, decrypt, receipt, remove } = secretsClient(secrets);

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

test('a read without max_reads, and a deletion, are 503 if they cannot be recorded', async () => {
  const { id, secret } = await keep(TEXT);
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

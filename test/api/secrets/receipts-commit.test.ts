/** A read and its receipt are one statement: if it fails, nothing is returned. */
import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { type Answer, launch } from '../../support/gatehouse.ts';
import { secretsClient, wrongKey } from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const { url, sql } = await launch(['secrets']);
const { keep, decrypt, receipt, remove } = secretsClient(url.secrets);

const rows = async () =>
  (await sql`select * from secrets.secrets order by id`).map((row) => ({ ...row }));

/** The columns that each statement changed, recorded by a trigger. */
await sql`create table changes (place bigint generated always as identity, columns text[])`;
await sql.unsafe(`
  create function note_change() returns trigger language plpgsql as $$ begin
    insert into public.changes (columns)
    select array_agg(key order by key)
      from jsonb_each(to_jsonb(new)) one join jsonb_each(to_jsonb(old)) other using (key)
      where one.value <> other.value;
    return null;
  end $$`);
await sql`create trigger note_change after update on secrets.secrets for each row execute function note_change()`;
const changes = async () =>
  (await sql`delete from changes returning place, columns`).map(({ columns }): string[] => columns);

/** Rejects rows that match a condition, like a disk that is full at the worst moment. */
const forbid = (condition: string) =>
  sql.unsafe(`alter table secrets.secrets add constraint forbidden check (${condition}) not valid`);
afterEach(async () => {
  await sql`alter table secrets.secrets drop constraint if exists forbidden`;
});

function assertUnavailable(answer: Answer): void {
  assert.deepEqual([answer.status, answer.json.error.code], [503, 'unavailable'], answer.text);
  assert.match(answer.headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
  assert.ok(!answer.text.includes(TEXT));
}

test('a read before the last one is one change: count and time', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 2 });
  await changes();
  assert.equal((await decrypt(id, secret)).status, 200);
  assert.deepEqual(await changes(), [['last_read_at', 'reads']]);
});

test('the last read is one change: count, time, end and content', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  await changes();
  assert.equal((await decrypt(id, secret)).status, 200);
  assert.deepEqual(await changes(), [
    ['blob', 'ended_at', 'ending', 'last_read_at', 'reads', 'tag'],
  ]);
});

test('a failed read changes one count, and a deletion no count', async () => {
  const { id } = await keep(TEXT, { max_reads: 1 });
  await changes();
  assert.equal((await decrypt(id, wrongKey())).status, 404);
  assert.deepEqual(await changes(), [['failed_reads']]);
  assert.equal((await remove(id)).status, 200);
  assert.deepEqual(await changes(), [['blob', 'ended_at', 'ending', 'tag']]);
});

const PARTS: ReadonlyArray<readonly [what: string, condition: string]> = [
  ['the moment of the read', 'last_read_at is null'],
  ['the count of the read', 'reads = 0'],
  ['the end of the secret', 'ending is null'],
  ['that the content is gone', 'blob is not null and tag is not null'],
];
for (const [what, condition] of PARTS) {
  test(`the last read is 503, without a change, if ${what} cannot be written`, async () => {
    await sql`truncate secrets.secrets`;
    const { id, secret } = await keep(TEXT, { max_reads: 1 });
    await forbid(condition);
    const before = await rows();
    const told = (await receipt(id)).text;
    for (let count = 0; count < 3; count += 1) assertUnavailable(await decrypt(id, secret));
    assert.deepEqual(await rows(), before);
    assert.equal((await receipt(id)).text, told);
    await sql`alter table secrets.secrets drop constraint forbidden`;
    assert.equal((await decrypt(id, secret)).json.password, TEXT);
    assert.equal((await receipt(id)).json.status, 'read');
  });
}

test('a read without max_reads is 503 if it cannot be recorded', async () => {
  const { id, secret } = await keep(TEXT);
  await forbid('last_read_at is null');
  const before = await rows();
  assertUnavailable(await decrypt(id, secret));
  assert.deepEqual(await rows(), before);
});

test('a failed read is 503 if it cannot be counted', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 1, passphrase: 'open sesame' });
  await forbid('failed_reads = 0');
  const before = await rows();
  for (const answer of [
    await decrypt(id, wrongKey()),
    await decrypt(id, 'no key'),
    await decrypt(id, secret, 'open says me'),
  ]) {
    assertUnavailable(answer);
  }
  assert.deepEqual(await rows(), before);
  const counted = await sql`select attempts from secrets.throttles`;
  assert.deepEqual(
    counted.map(({ attempts }) => attempts),
    [1, 1],
    'the wrong passphrase counts as an attempt',
  );
  await sql`alter table secrets.secrets drop constraint forbidden`;
  assert.equal((await decrypt(id, secret, 'open sesame')).json.password, TEXT);
});

test('a deletion is 503 if it cannot be recorded, and the secret still opens', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  await forbid(`ending is distinct from 'deleted'`);
  const before = await rows();
  assertUnavailable(await remove(id));
  assert.deepEqual(await rows(), before);
  assert.equal((await decrypt(id, secret)).json.password, TEXT);
});

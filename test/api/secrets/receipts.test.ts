/** Receipts of secrets, and deletion. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { rowTagOf } from '../../support/envelope.ts';
import { launch, SERVER_SECRET } from '../../support/gatehouse.ts';
import { startHousekeeping } from '../../support/housekeeping.ts';
import { secretsClient, storedSecret, wrongKey } from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const gatehouse = await launch(['secrets']);
const { sql, databaseUrl, secrets: base } = gatehouse;
const { keep, decrypt, list, receipt, remove } = secretsClient(base);
const housekeeping = startHousekeeping({ after }, databaseUrl);
const empty = () => housekeeping.run('empty expired secrets');

const clock = async () =>
  Number((await sql`select date_trunc('milliseconds', clock_timestamp()) as now`)[0]?.now);

/**
 * Sets the expiry to a second ago. The row is then damaged, so use it only for secrets that are not
 * opened again.
 */
async function letExpire(id: string): Promise<void> {
  const { blob, commitment, max_reads: maxReads } = await storedSecret(sql, id);
  const past = new Date((await clock()) - 1_000);
  const metadata = { id, expiresAt: past.getTime(), maxReads };
  const tag = blob && rowTagOf(createServerKey(SERVER_SECRET), metadata, { blob, commitment });
  await sql`update secrets.secrets set expires_at = ${past}, tag = ${tag} where id = ${id}`;
}

const receiptOf = async (id: string) => (await receipt(id)).json;
async function summary(id: string): Promise<unknown[]> {
  const { status, max_reads, reads, failed_reads } = await receiptOf(id);
  return [status, max_reads, reads, failed_reads];
}
const deletions = (id: string) =>
  gatehouse
    .log()
    .filter(({ message, secret_id }) => message === 'secret deleted' && secret_id === id);

/** A secret that has ended in another way is not deleted, and keeps its receipt. */
async function assertNotDeleted(id: string): Promise<void> {
  const before = await receiptOf(id);
  const { status, json } = await remove(id);
  assert.deepEqual([status, json.error.code], [404, 'not_found']);
  assert.match(json.error.message, /See its receipt/);
  assert.deepEqual(await receiptOf(id), before);
}

test('receipt: exactly these members, and the status stored, for a new secret; nothing changes', async () => {
  const before = await clock();
  const { id, expires_at } = await keep(TEXT, { max_reads: 3, expires_in: 600 });
  const row = await storedSecret(sql, id);
  const { status, text } = await receipt(id.toUpperCase());
  const { created_at } = JSON.parse(text);
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
  const between = await clock();
  assert.deepEqual(await summary(id), ['stored', 2, 1, 1]);
  const first = await lastRead();
  assert.ok(first >= before && first <= between);
  await decrypt(id, secret);
  const last = await lastRead();
  assert.ok(last >= between && last <= (await clock()));
  for (const key of [secret, wrongKey(), 'no key'])
    assert.equal((await decrypt(id, key)).status, 404);
  assert.deepEqual(await summary(id), ['read', 2, 2, 4]);
  assert.equal(await lastRead(), last, 'a failed read does not count as a read');
  await assertNotDeleted(id);
  await letExpire(id);
  await empty();
  assert.deepEqual(await summary(id), ['read', 2, 2, 4], 'also after the expiry');
});

test('receipt: expired before and after housekeeping, with or without max_reads', async () => {
  for (const max_reads of [null, 2]) {
    const { id, secret } = await keep(TEXT, max_reads ? { max_reads } : {});
    await decrypt(id, secret);
    await letExpire(id);
    assert.equal((await decrypt(id, secret)).status, 404);
    assert.deepEqual(await summary(id), ['expired', max_reads, 1, 1]);
    await assertNotDeleted(id);
    const before = await receiptOf(id);
    await empty();
    assert.deepEqual(await receiptOf(id), before);
    const { blob, tag, ending } = await storedSecret(sql, id);
    assert.deepEqual([blob, tag, ending], [null, null, 'expired']);
    assert.equal((await decrypt(id, secret)).status, 404);
    assert.deepEqual(await summary(id), ['expired', max_reads, 1, 2]);
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
  assert.equal(deletions(id).length, 1, 'it is logged once');
});

test('receipt and deletion: 404 for an unknown id', async () => {
  const id = randomUUID();
  for (const { status, json } of [await receipt(id), await remove(id)]) {
    assert.deepEqual([status, json.error.code], [404, 'not_found']);
    assert.match(json.error.message, /no such secret|does not exist/);
  }
});

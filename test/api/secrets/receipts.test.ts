/** Receipts of secrets, and deletion. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { rowTagOf } from '../../support/envelope.ts';
import { ask, AUTH_TOKEN, launch, SERVER_SECRET, startGatehouse } from '../../support/gatehouse.ts';
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

test('receipt: exactly these members, and the status stored, for a new secret', async () => {
  const before = await clock();
  const { id, expires_at } = await keep(TEXT, { max_reads: 3, expires_in: 600 });
  const { status, text } = await receipt(id);
  const { created_at } = JSON.parse(text);
  const counts = { max_reads: 3, reads: 0, last_read_at: null, failed_reads: 0 };
  const expected = { id, status: 'stored', created_at, expires_at, ...counts };
  assert.deepEqual([status, text], [200, JSON.stringify(expected)]);
  assert.equal(new Date(created_at).toISOString(), created_at);
  assert.ok(Date.parse(created_at) >= before && Date.parse(created_at) <= (await clock()));
});

test('receipt: without limits both are null, the status stays stored, and reads are counted', async (t) => {
  const { url } = await startGatehouse(t, ['secrets'], databaseUrl, { SECRET_TTL: '0' });
  const { id, secret } = await secretsClient(url.secrets).keep(TEXT);
  for (let read = 1; read <= 3; read += 1) {
    await decrypt(id, secret);
    assert.deepEqual(await summary(id), ['stored', null, read, 0]);
  }
  assert.equal((await receiptOf(id)).expires_at, null);
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
  await letExpire(id);
  await empty();
  assert.deepEqual(await summary(id), ['read', 2, 2, 4], 'also after the expiry');
});

for (const max_reads of [undefined, 2]) {
  const limit = max_reads ? 'with a read left' : 'without max_reads';
  test(`receipt: expired before and after housekeeping, ${limit}`, async () => {
    const { id, secret } = await keep(TEXT, max_reads ? { max_reads } : {});
    await decrypt(id, secret);
    await letExpire(id);
    assert.equal((await decrypt(id, secret)).status, 404);
    assert.deepEqual(await summary(id), ['expired', max_reads ?? null, 1, 1]);
    const before = await receiptOf(id);
    await empty();
    assert.deepEqual(await receiptOf(id), before);
    const { blob, tag, ending } = await storedSecret(sql, id);
    assert.deepEqual([blob, tag, ending], [null, null, 'expired']);
    assert.equal((await decrypt(id, secret)).status, 404);
    assert.deepEqual(await summary(id), ['expired', max_reads ?? null, 1, 2]);
  });
}

test('deletion: the secret does not open, is not listed, and its row has no content', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 2 });
  await decrypt(id, secret);
  const { ended_at: _, ...before } = await storedSecret(sql, id);
  const { status, text } = await remove(id);
  assert.deepEqual([status, text], [200, `{"id":"${id}","status":"deleted"}`]);
  assert.deepEqual(await summary(id), ['deleted', 2, 1, 0]);
  assert.equal((await decrypt(id, secret)).status, 404);
  assert.ok(!(await list()).text.includes(id));
  const { ended_at, ...row } = await storedSecret(sql, id);
  assert.ok(ended_at instanceof Date);
  const gone = { blob: null, tag: null, ending: 'deleted', failed_reads: '1' };
  assert.deepEqual(row, { ...before, ...gone });
});

test('a second deletion gets the same reply, changes nothing and is not logged', async () => {
  const { id } = await keep(TEXT);
  const first = await remove(id);
  const row = await storedSecret(sql, id);
  const second = await remove(id.toUpperCase());
  assert.deepEqual([second.status, second.text], [first.status, first.text]);
  assert.deepEqual(await storedSecret(sql, id), row);
  assert.equal(deletions(id).length, 1);
});

async function keepEnded(how: 'read' | 'expired' | 'emptied'): Promise<string> {
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  if (how === 'read') await decrypt(id, secret);
  else await letExpire(id);
  if (how === 'emptied') await empty();
  return id;
}
for (const how of ['read', 'expired', 'emptied'] as const) {
  test(`deletion: 404 with a reference to its receipt for a secret that is ${how}`, async () => {
    const id = await keepEnded(how);
    const before = await receiptOf(id);
    assert.equal(before.status, how === 'read' ? 'read' : 'expired');
    const { status, json } = await remove(id);
    assert.deepEqual([status, json.error.code], [404, 'not_found']);
    assert.match(json.error.message, /See its receipt/);
    assert.deepEqual(await receiptOf(id), before);
  });
}

test('receipt and deletion: 404 for an unknown id', async () => {
  const id = randomUUID();
  for (const { status, json } of [await receipt(id), await remove(id)]) {
    assert.deepEqual([status, json.error.code], [404, 'not_found']);
    assert.match(json.error.message, /no such secret|does not exist/);
  }
});

test('receipt: reading it uses nothing up', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  const before = await storedSecret(sql, id);
  assert.equal((await receipt(id)).text, (await receipt(id.toUpperCase())).text);
  await ask('HEAD', `${base}/api/store/${id}`, { bearer: AUTH_TOKEN });
  assert.deepEqual(await storedSecret(sql, id), before);
  assert.equal((await decrypt(id, secret)).json.password, TEXT);
});

/** Receipts of secrets, and deletion. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import {
  type Answer,
  ask,
  AUTH_TOKEN,
  launch,
  SERVER_SECRET,
  startGatehouse,
} from '../../support/gatehouse.ts';
import { rowTagOf } from '../../support/envelope.ts';
import { startHousekeeping } from '../../support/housekeeping.ts';
import { secretsClient, storedSecret, wrongKey } from '../../support/secrets.ts';
import { wordsOf } from '../../support/words.ts';

const TEXT = 'marked-password-text';
const MEMBERS = wordsOf(`
  id status created_at expires_at max_reads reads last_read_at failed_reads
`);

const gatehouse = await launch(['secrets']);
const { sql, databaseUrl } = gatehouse;
const base = gatehouse.url.secrets;
const { keep, decrypt, list, receipt, remove } = secretsClient(base);
const housekeeping = startHousekeeping({ after }, databaseUrl);

const clock = async () =>
  Number((await sql`select date_trunc('milliseconds', clock_timestamp()) as now`)[0]?.now);
/**
 * Sets the expiry to a second ago. The row is then damaged, so use it only for secrets that are not
 * opened again.
 */
async function letExpire(id: string): Promise<void> {
  const [row] = await sql`
    select blob, commitment, max_reads, date_trunc('milliseconds',
      now()) - interval '1 second' as past
    from secrets.secrets where id = ${id}`;
  const metadata = { id, expiresAt: Number(row?.past), maxReads: row?.max_reads };
  const tag =
    row?.blob &&
    rowTagOf(createServerKey(SERVER_SECRET), metadata, {
      blob: row.blob,
      commitment: row.commitment,
    });
  await sql`update secrets.secrets set expires_at = ${row?.past}, tag = ${tag} where id = ${id}`;
}

async function receiptOf(id: string): Promise<Record<string, unknown>> {
  const { status, json } = await receipt(id);
  assert.equal(status, 200);
  assert.deepEqual(Object.keys(json), MEMBERS);
  return json;
}

/** The receipt without its two times. */
async function summary(id: string): Promise<unknown[]> {
  const { status, max_reads, reads, failed_reads } = await receiptOf(id);
  return [status, max_reads, reads, failed_reads];
}

test('receipt: exactly these members, and the status stored, for a new secret', async () => {
  const before = await clock();
  const { id, expires_at } = await keep(TEXT, { max_reads: 3, expires_in: 600 });
  const found = await receiptOf(id);
  const created = String(found.created_at);
  assert.deepEqual(found, {
    id,
    status: 'stored',
    created_at: created,
    expires_at,
    max_reads: 3,
    reads: 0,
    last_read_at: null,
    failed_reads: 0,
  });
  assert.equal(new Date(created).toISOString(), created);
  assert.ok(Date.parse(created) >= before && Date.parse(created) <= (await clock()));
});

test('receipt: null for both limits of a secret without limits', async (t) => {
  const { url } = await startGatehouse(t, ['secrets'], databaseUrl, { SECRET_TTL: '0' });
  const { id } = await secretsClient(url.secrets).keep(TEXT);
  const { expires_at, max_reads } = await receiptOf(id);
  assert.deepEqual({ expires_at, max_reads }, { expires_at: null, max_reads: null });
});

test('receipt: stored until the last read, then read; wrong keys are counted throughout', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 2 });
  await decrypt(id, wrongKey());
  assert.deepEqual(await summary(id), ['stored', 2, 0, 1]);
  const before = await clock();
  assert.equal((await decrypt(id, secret)).status, 200);
  const between = await clock();
  assert.deepEqual(await summary(id), ['stored', 2, 1, 1]);
  const first = Date.parse(String((await receiptOf(id)).last_read_at));
  assert.ok(first >= before && first <= between);
  assert.equal((await decrypt(id, secret)).status, 200);
  assert.deepEqual(await summary(id), ['read', 2, 2, 1]);
  const last = (await receiptOf(id)).last_read_at;
  assert.ok(Date.parse(String(last)) >= between && Date.parse(String(last)) <= (await clock()));
  for (const key of [secret, wrongKey(), 'no key'])
    assert.equal((await decrypt(id, key)).status, 404);
  assert.deepEqual(await summary(id), ['read', 2, 2, 4]);
  assert.equal((await receiptOf(id)).last_read_at, last, 'a failed read does not count as a read');
});

test('receipt: without max_reads the status stays stored, and reads are counted', async () => {
  const { id, secret } = await keep(TEXT);
  for (let read = 1; read <= 12; read += 1) {
    assert.equal((await decrypt(id, secret)).status, 200);
    assert.deepEqual(await summary(id), ['stored', null, read, 0]);
  }
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
    await housekeeping.run('empty expired secrets');
    assert.deepEqual(await receiptOf(id), before);
    const { blob, tag, ending } = await storedSecret(sql, id);
    assert.deepEqual({ blob, tag, ending }, { blob: null, tag: null, ending: 'expired' });
    assert.equal((await decrypt(id, secret)).status, 404);
    assert.deepEqual(await summary(id), ['expired', max_reads ?? null, 1, 2]);
  });
}

test('receipt: the status stays read after the expiry', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  await decrypt(id, secret);
  await letExpire(id);
  await housekeeping.run('empty expired secrets');
  assert.deepEqual(await summary(id), ['read', 1, 1, 0]);
});

test('deletion: the secret does not open, is not listed, and its row has no content', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 2 });
  await decrypt(id, secret);
  const before = await storedSecret(sql, id);
  const answer = await remove(id);
  assert.deepEqual([answer.status, answer.text], [200, `{"id":"${id}","status":"deleted"}`]);
  assert.deepEqual(await summary(id), ['deleted', 2, 1, 0]);
  assert.equal((await decrypt(id, secret)).status, 404);
  assert.ok(!(await list()).text.includes(id));
  const { ended_at, ...row } = await storedSecret(sql, id);
  assert.ok(ended_at instanceof Date);
  const { ended_at: _, ...stays } = before;
  assert.deepEqual(row, { ...stays, blob: null, tag: null, ending: 'deleted', failed_reads: '1' });
});

test('a second deletion gets the same reply and changes nothing', async () => {
  const { id } = await keep(TEXT);
  const first = await remove(id);
  const row = await storedSecret(sql, id);
  const second = await remove(id.toUpperCase());
  assert.deepEqual([second.status, second.text], [first.status, first.text]);
  assert.deepEqual(await storedSecret(sql, id), row);
  assert.equal(
    gatehouse.log().filter((line) => line.message === 'secret deleted' && line.secret_id === id)
      .length,
    1,
  );
});

test('concurrent deletions: the same reply for all, and one log line', async () => {
  const { id } = await keep(TEXT);
  const answers = await Promise.all(Array.from({ length: 8 }, () => remove(id)));
  for (const { status, json } of answers)
    assert.deepEqual([status, json], [200, { id, status: 'deleted' }]);
  assert.equal(
    gatehouse.log().filter((line) => line.message === 'secret deleted' && line.secret_id === id)
      .length,
    1,
  );
});

const readUp = async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  await decrypt(id, secret);
  return id;
};
const expired = async () => {
  const { id } = await keep(TEXT);
  await letExpire(id);
  return id;
};
const emptied = async () => {
  const id = await expired();
  await housekeeping.run('empty expired secrets');
  return id;
};
for (const [what, status, prepare] of [
  ['was read up', 'read', readUp],
  ['has expired', 'expired', expired],
  ['has expired and is emptied', 'expired', emptied],
] as const) {
  test(`deletion: 404 for a secret that ${what}, with a reference to its receipt`, async () => {
    const id = await prepare();
    const before = await receiptOf(id);
    assert.equal(before.status, status);
    const answer = await remove(id);
    assert.deepEqual([answer.status, answer.json.error.code], [404, 'not_found']);
    assert.match(answer.json.error.message, /See its receipt/);
    assert.deepEqual(await receiptOf(id), before);
  });
}

const both = (id: string, bearer?: string) =>
  Promise.all(
    ['GET', 'DELETE'].map((method) =>
      ask(method, `${base}/api/store/${id}`, bearer === undefined ? {} : { bearer }),
    ),
  );

function assertFailures(answers: readonly Answer[], status: number, code: string): void {
  for (const answer of answers)
    assert.deepEqual([answer.status, answer.json.error.code], [status, code], answer.text);
}

test('receipt and deletion: 404 for an unknown id', async () => {
  const answers = await both(randomUUID(), AUTH_TOKEN);
  assertFailures(answers, 404, 'not_found');
  for (const { json } of answers) assert.match(json.error.message, /no such secret|does not exist/);
});

test('receipt: reading it uses nothing up', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  const before = await storedSecret(sql, id);
  const texts = new Set<string>();
  for (let count = 0; count < 5; count += 1)
    texts.add((await receipt(count % 2 ? id : id.toUpperCase())).text);
  assert.equal(texts.size, 1);
  assert.equal((await ask('HEAD', `${base}/api/store/${id}`, { bearer: AUTH_TOKEN })).status, 200);
  assert.deepEqual(await storedSecret(sql, id), before);
  assert.equal((await decrypt(id, secret)).json.password, TEXT);
});

test('receipt: removed RECEIPT_RETENTION after the end, however the secret ended', async (t) => {
  const hourly = startHousekeeping(t, databaseUrl, { RECEIPT_RETENTION: '3600' });
  const alive = (await keep(TEXT)).id;
  const deleted = (await keep(TEXT)).id;
  const read = await readUp();
  const gone = await emptied();
  await remove(deleted);
  const ended = [deleted, read, gone];
  const endedAgo = (seconds: number) =>
    sql`update secrets.secrets set ended_at = now() - make_interval(secs => ${seconds})
      where id in ${sql(ended)}`;
  // Only its end counts, not when it was stored.
  await sql`update secrets.secrets set created_at = now() - interval '1 year'
    where id in ${sql([alive, ...ended])}`;
  await endedAgo(3_500);
  await hourly.run('remove from secrets.secrets');
  for (const [index, status] of ['deleted', 'read', 'expired'].entries()) {
    assert.equal((await receiptOf(ended[index] ?? '')).status, status);
  }
  await endedAgo(3_601);
  await hourly.run('remove from secrets.secrets');
  for (const id of ended) {
    assertFailures(await both(id, AUTH_TOKEN), 404, 'not_found');
    assert.equal((await decrypt(id, wrongKey())).status, 404);
    assert.deepEqual(await storedSecret(sql, id), {});
  }
  assert.equal((await receiptOf(alive)).status, 'stored');
});

test('RECEIPT_RETENTION=0: receipts are removed with the next housekeeping', async (t) => {
  const id = await readUp();
  assert.equal((await receiptOf(id)).status, 'read');
  await startHousekeeping(t, databaseUrl, { RECEIPT_RETENTION: '0' }).run(
    'remove from secrets.secrets',
  );
  assertFailures(await both(id, AUTH_TOKEN), 404, 'not_found');
});

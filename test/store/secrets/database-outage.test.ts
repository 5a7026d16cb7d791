import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { type Answer, ask, AUTH_TOKEN, startGatehouse } from '../../support/gatehouse.ts';
import { startProxy } from '../../support/proxy.ts';
import { secretsClient } from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const { url: databaseUrl, sql } = await createDatabase();
const proxy = await startProxy({ after }, databaseUrl);
const gatehouse = await startGatehouse({ after }, ['secrets'], proxy.url);
const base = gatehouse.url.secrets;
const { encrypt, keep, decrypt, list } = secretsClient(base);

function isUnavailable(answer: Answer) {
  assert.deepEqual([answer.status, answer.json.error.code], [503, 'unavailable']);
  assert.match(answer.headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
  assert.ok(!answer.text.includes(TEXT));
}

const isReady = async (url = base) => (await ask('GET', `${url}/readyz`)).status === 200;

test('without a database: every operation is 503 with Retry-After, and no data is lost', async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  await proxy.cut();
  for (const expires_in of [undefined, 60])
    isUnavailable(await encrypt({ password: TEXT, expires_in }));
  for (const sought of [id, randomUUID()]) isUnavailable(await decrypt(sought, secret));
  isUnavailable(await list());
  await untilSql(async () => !(await isReady()), 'it is not ready');
  assert.equal((await ask('GET', `${base}/livez`)).status, 200);
  assert.equal((await ask('GET', `${base}/api/store`)).status, 401);
  assert.equal((await encrypt({ password: '' })).status, 400);
  isUnavailable(await decrypt(id, 'no key')); // a failed read that cannot be recorded is 503 too
  const [row] =
    await sql`select count(*)::int as rows, sum(reads)::int as reads from secrets.secrets`;
  assert.deepEqual({ ...row }, { rows: 1, reads: 0 });

  await proxy.restore();
  await untilSql(isReady, 'it is ready');
  assert.equal((await decrypt(id, secret)).json.password, TEXT);
  assert.equal((await decrypt(id, secret)).status, 404);
  assert.ok(gatehouse.log().some((line) => line.message === 'dependency failed'));
  const written = gatehouse.stdout() + gatehouse.stderr();
  for (const mark of [TEXT, secret, AUTH_TOKEN, new URL(databaseUrl).password])
    assert.ok(!written.includes(mark));
});

test('a start without a database: 503 until the database is available', async (t) => {
  const proxy = await startProxy(t, databaseUrl);
  await proxy.cut();
  const { url } = await startGatehouse(t, ['secrets'], proxy.url, {}, 'listening');
  const late = secretsClient(url.secrets);
  isUnavailable(await late.encrypt({ password: TEXT }));
  assert.equal(await isReady(url.secrets), false);
  await proxy.restore();
  await untilSql(() => isReady(url.secrets), 'it is ready');
  const { id, secret } = await late.keep(TEXT);
  assert.equal((await late.decrypt(id, secret)).json.password, TEXT);
});

test('a missing table is 503, never 404', async (t) => {
  const own = await createDatabase(t);
  const { url } = await startGatehouse(t, ['secrets'], own.url);
  const client = secretsClient(url.secrets);
  const { id, secret } = await client.keep(TEXT);
  await own.sql`alter table secrets.secrets rename to elsewhere`;
  isUnavailable(await client.decrypt(id, secret));
  isUnavailable(await client.encrypt({ password: TEXT }));
  isUnavailable(await client.list());
  await own.sql`alter table secrets.elsewhere rename to secrets`;
  assert.equal((await client.decrypt(id, secret)).json.password, TEXT);
});

test('a list that loses its database is aborted and never looks complete', async (t) => {
  const own = await createDatabase(t);
  const proxy = await startProxy(t, own.url);
  const { url } = await startGatehouse(t, ['secrets'], proxy.url);
  await own.sql`
    insert into secrets.secrets (id, key_id, commitment, blob, tag)
    select gen_random_uuid(), 'key', '\\x00', decode(repeat(md5(n::text), 1024), 'hex'), '\\x00'
    from generate_series(1, 1500) n`;
  const response = await fetch(`${url.secrets}/api/store`, {
    headers: { authorization: `Bearer ${AUTH_TOKEN}` },
  });
  assert.equal(response.status, 200);
  // The list is far longer than the socket buffers, so the service is still sending it.
  await proxy.cut();
  await assert.rejects(response.text());
  assert.equal((await ask('GET', `${url.secrets}/livez`)).status, 200);
  await proxy.restore();
});

import assert from 'node:assert/strict';
import { get } from 'node:http';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { test } from 'node:test';
import { AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';

const MIB = 1024 * 1024;

const { url, sql } = await launch(['secrets']);
const { list } = secretsClient(url.secrets);

/** Rows that suffice for the list, which decrypts nothing. */
async function fill(rows: number, bytes = 285): Promise<void> {
  await sql`truncate secrets.secrets`;
  await sql`
    insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at)
    select gen_random_uuid(), 'key', '\\x00', decode(repeat(md5(n::text), ${Math.ceil(bytes / 16)}),
      'hex'), '\\x00',
      now() + interval '1 day'
    from generate_series(1, ${rows}::int) n`;
}

const readable = async () => {
  const rows = await sql<Array<{ id: string; blob: Buffer }>>`
    select id, blob from secrets.secrets where blob is not null and (expires_at is null
      or expires_at > now())`;
  return new Map(rows.map(({ id, blob }) => [id, blob.toString('base64url')]));
};

// The list is read in pages of 100 rows.
for (const rows of [0, 1, 100, 101, 200]) {
  test(`list: ${rows} secrets are complete, valid JSON`, async () => {
    await fill(rows);
    const { status, text, json } = await list();
    assert.equal(status, 200);
    assert.equal(json.length, rows);
    assert.deepEqual(
      new Map(json.map((item: { id: string; secret: string }) => [item.id, item.secret])),
      await readable(),
    );
    if (rows === 0) assert.equal(text, '[]');
  });
}

test('list: of 5,000 rows every readable secret once, and no other', async () => {
  await fill(5_000);
  await sql`
    update secrets.secrets set expires_at = now() - interval '1 millisecond'
    where id in (select id from secrets.secrets order by id limit 150)`;
  await sql`
    update secrets.secrets set blob = null, tag = null, ending = 'read', max_reads = 1, reads = 1
    where id in (select id from secrets.secrets order by id desc limit 150)`;
  await sql`
    update secrets.secrets set expires_at = null 
    where id in (select id from secrets.secrets order by id offset 2500 limit 10)`;
  const { json } = await list();
  const expected = await readable();
  assert.equal(expected.size, 4_700);
  assert.equal(json.length, expected.size);
  for (const { id, secret } of json) assert.ok(expected.get(id) === secret, id);
});

test('list: stays valid while secrets are added and removed', async () => {
  await fill(2_000);
  const before = await readable();
  const churn = (async () => {
    for (let round = 0; round < 20; round += 1) {
      await sql`delete from secrets.secrets where key_id = 'passing'`;
      await sql`
        insert into secrets.secrets (id, key_id, commitment, blob, tag)
        select gen_random_uuid(), 'passing', '\\x00', '\\x01', '\\x00' from generate_series(1,
          100)`;
    }
  })();
  const lists = await Promise.all(Array.from({ length: 4 }, () => list()));
  await churn;
  for (const { json } of lists) {
    const ids = new Set(json.map((item: { id: string }) => item.id));
    assert.equal(ids.size, json.length, 'no id twice');
    for (const id of before.keys()) assert.ok(ids.has(id));
  }
});

test('list: memory does not grow with its length', async () => {
  await fill(5_000, 16 * 1024);
  setFlagsFromString('--expose-gc');
  const collect: () => void = runInNewContext('gc');
  /** The memory in use after a garbage collection. */
  const used = () => {
    // The second one frees buffers whose owners the first one has freed.
    collect();
    collect();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const before = used();
  let most = before;
  let length = 0;
  await new Promise<void>((resolve, reject) => {
    get(
      `${url.secrets}/api/store`,
      { headers: { authorization: `Bearer ${AUTH_TOKEN}` } },
      (response) => {
        response.on('data', (chunk: Buffer) => {
          const tenth = Math.floor(length / (10 * MIB));
          length += chunk.length;
          if (Math.floor(length / (10 * MIB)) > tenth) most = Math.max(most, used());
        });
        response.on('end', resolve).on('error', reject);
      },
    ).on('error', reject);
  });
  assert.ok(length > 100 * MIB, `the list had ${length} bytes`);
  // The whole list in memory would exceed its length.
  assert.ok(most - before < 60 * MIB, `it took ${Math.round((most - before) / MIB)} MiB`);
});

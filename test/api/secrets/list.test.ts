/** The list of secrets, whole and by page. */
import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { type Answer, ask, AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';

const MIB = 1024 * 1024;
const NIL = '00000000-0000-0000-0000-000000000000';
const LAST = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

const { secrets: base, sql } = await launch(['secrets']);
const { list, remove } = secretsClient(base);

beforeEach(async () => {
  await sql`truncate secrets.secrets`;
});

/** Rows that suffice for the list, which decrypts nothing. @returns their ids, in order */
async function fill(rows: number, bytes = 16): Promise<string[]> {
  await sql`
    insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at)
    select gen_random_uuid(), 'key', '\\x00',
      decode(repeat(md5(n::text), ${Math.ceil(bytes / 16)}), 'hex'), '\\x00',
      now() + interval '1 day'
    from generate_series(1, ${rows}::int) n`;
  return (await sql`select id from secrets.secrets order by id`).map(({ id }): string => id);
}

/** What the list must have: what can be read. */
const readable = async () => {
  const rows = await sql<Array<{ id: string; blob: Buffer }>>`
    select id, blob from secrets.secrets
    where blob is not null and (expires_at is null or expires_at > now()) order by id`;
  return rows.map(({ id, blob }) => ({ id, secret: blob.toString('base64url') }));
};
const idsOf = ({ json }: Answer): string[] => json.map(({ id }: { id: string }) => id);

/** The target of the Link header, if there is one. */
function nextOf({ headers }: Answer): string | null {
  const link = headers.get('link');
  if (link === null) return null;
  return /^<([^<>"]+)>; rel="next"$/.exec(link)?.[1] ?? assert.fail(link);
}

const pagesOf = (ids: readonly string[], length: number) =>
  ids.flatMap((_, at) => (at % length === 0 ? [ids.slice(at, at + length)] : []));

/** Follows the links (RFC 8288). */
async function walk(start: string): Promise<string[][]> {
  const pages: string[][] = [];
  for (let target: string | null = start; target !== null;) {
    const answer = await ask('GET', new URL(target, base).href, { bearer: AUTH_TOKEN });
    assert.equal(answer.status, 200, answer.text);
    pages.push(idsOf(answer));
    assert.ok(pages.length < 500, 'the links lead in a circle');
    target = nextOf(answer);
  }
  return pages;
}

test('the list is complete, without a link; its pages are full, and the last has no link', async () => {
  // The whole list is read in pages of 100 rows.
  for (const rows of [0, 1, 100, 101, 200]) {
    const ids = await fill(rows);
    for (const query of ['', '?', '/']) {
      const answer = await list(query);
      assert.deepEqual([answer.json, nextOf(answer)], [await readable(), null]);
    }
    const pages = rows === 0 ? [[]] : pagesOf(ids, 100);
    assert.deepEqual(await walk('/api/store?limit=100'), pages);
    await sql`truncate secrets.secrets`;
  }
});

test('the list has every readable secret once, and no other', async () => {
  const ids = await fill(1_000);
  await sql`update secrets.secrets set expires_at = now() - interval '1 millisecond'
    where id in ${sql(ids.slice(0, 150))}`;
  await sql`update secrets.secrets set blob = null, tag = null, ending = 'read', max_reads = 1,
    reads = 1 where id in ${sql(ids.slice(-150))}`;
  await sql`update secrets.secrets set expires_at = null where id in ${sql(ids.slice(500, 510))}`;
  const { json } = await list();
  assert.deepEqual([json.length, json], [700, await readable()]);
  const full = pagesOf(ids.slice(150, -150), 100);
  assert.deepEqual(await walk('/api/store?limit=100'), full, 'no page is shorter');
});

test('memory does not grow with the length of the list', async () => {
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
  const headers = { authorization: `Bearer ${AUTH_TOKEN}` };
  const { body } = await fetch(`${base}/api/store`, { headers });
  for await (const chunk of body ?? []) {
    const isTenth = (length + chunk.length) % (10 * MIB) < length % (10 * MIB);
    length += chunk.length;
    if (isTenth) most = Math.max(most, used());
  }
  assert.ok(length > 100 * MIB, `the list had ${length} bytes`);
  // The whole list in memory would exceed its length.
  assert.ok(most - before < 60 * MIB, `it took ${Math.round((most - before) / MIB)} MiB`);
});

test('pages are sorted by id, with a link to the next, and of 100 without a limit', async () => {
  const ids = await fill(205);
  const first = await list('?limit=2');
  assert.deepEqual(idsOf(first), ids.slice(0, 2));
  assert.equal(nextOf(first), `/api/store?limit=2&after=${ids[1]}`);
  assert.deepEqual(await walk('/api/store?limit=9'), pagesOf(ids, 9));
  assert.deepEqual(await walk(`/api/store?after=${NIL}`), pagesOf(ids, 100));
});

test('after accepts an id in capitals or that does not exist, and continues at its position', async () => {
  const ids = await fill(10);
  const gone = ids[3] ?? assert.fail();
  const idsAfter = async (after: string) => idsOf(await list(`?limit=3&after=${after}`));
  assert.deepEqual(await idsAfter(gone.toUpperCase()), ids.slice(4, 7));
  await remove(gone);
  assert.deepEqual(await idsAfter(gone), ids.slice(4, 7));
  await sql`delete from secrets.secrets where id = ${gone}`;
  assert.deepEqual(await idsAfter(gone), ids.slice(4, 7));
  const last = await list(`?limit=3&after=${LAST}`);
  assert.deepEqual([last.status, last.text, nextOf(last)], [200, '[]', null]);
});

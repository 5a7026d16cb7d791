/** The list of secrets by page, also while secrets are added and removed. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { beforeEach, test } from 'node:test';
import { type Answer, ask, AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';

const { url, sql } = await launch(['secrets']);
const base = url.secrets;
const { keep, list, remove, decrypt } = secretsClient(base);
const NIL = '00000000-0000-0000-0000-000000000000';
const LAST = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

beforeEach(async () => {
  await sql`truncate secrets.secrets`;
});

/** Rows that suffice for the list, which decrypts nothing. @returns their ids, in order */
async function fill(rows: number): Promise<string[]> {
  await sql`
    insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at)
    select gen_random_uuid(), 'key', '\\x00', decode(md5(n::text), 'hex'), '\\x00',
      now() + interval '1 day'
    from generate_series(1, ${rows}::int) n`;
  return (await sql`select id from secrets.secrets order by id`).map(({ id }): string => id);
}

const idsOf = ({ json }: Answer): string[] => json.map((item: { id: string }) => item.id);

/** The target of the Link header, if there is one. */
function nextOf({ headers }: Answer): string | null {
  const link = headers.get('link');
  if (link === null) return null;
  const [, target] = /^<([^<>"]+)>; rel="next"$/.exec(link) ?? [];
  assert.ok(target !== undefined, link);
  return target;
}

/** Follows the links (RFC 8288). @param meanwhile runs between two pages, with the page */
async function walk(
  start: string,
  meanwhile: (page: string[]) => Promise<unknown> = async () => {},
): Promise<string[][]> {
  const pages: string[][] = [];
  for (let target: string | null = start; target !== null;) {
    const answer = await ask('GET', new URL(target, base).href, { bearer: AUTH_TOKEN });
    assert.equal(answer.status, 200, answer.text);
    const page = idsOf(answer);
    pages.push(page);
    assert.ok(pages.length < 500, 'the links lead in a circle');
    target = nextOf(answer);
    if (target !== null) await meanwhile(page);
  }
  return pages;
}

test('pages: sorted by id, as long as asked for, with a link to the next page', async () => {
  const ids = await fill(5);
  const first = await list('?limit=2');
  assert.equal(first.status, 200);
  assert.deepEqual(idsOf(first), ids.slice(0, 2));
  assert.equal(first.headers.get('link'), `</api/store?limit=2&after=${ids[1]}>; rel="next"`);
  assert.equal(first.headers.get('content-type'), 'application/json; charset=utf-8');
  assert.deepEqual(Object.keys(first.json[0]), ['id', 'secret']);
  assert.deepEqual(await walk('/api/store?limit=2'), [
    ids.slice(0, 2),
    ids.slice(2, 4),
    ids.slice(4),
  ]);
});

test('pages: the same items as in the whole list', async () => {
  for (let count = 0; count < 3; count += 1) await keep('x', { max_reads: 1 });
  const whole = (await list()).json;
  assert.deepEqual((await list('?limit=3')).json, whole);
  assert.deepEqual((await list(`?after=${whole[0].id}`)).json, whole.slice(1));
});

for (const rows of [0, 1, 10, 11, 20]) {
  test(`pages: of ${rows} secrets the last page has no link, and no page is empty`, async () => {
    const ids = await fill(rows);
    const pages = await walk('/api/store?limit=10');
    assert.deepEqual(pages.flat(), ids);
    assert.equal(pages.length, Math.max(1, Math.ceil(rows / 10)));
  });
}

test('pages: without parameters the whole list is returned, without a link', async () => {
  const ids = await fill(250);
  for (const query of ['', '?', '/', '/?']) {
    const whole = await list(query);
    assert.deepEqual(idsOf(whole), ids, query);
    assert.equal(whole.headers.get('link'), null);
  }
});

test('pages: limit alone starts at the first secret, after alone has pages of 100', async () => {
  const ids = await fill(205);
  assert.deepEqual(idsOf(await list('?limit=100')), ids.slice(0, 100));
  assert.deepEqual(await walk(`/api/store?after=${NIL}`), [
    ids.slice(0, 100),
    ids.slice(100, 200),
    ids.slice(200),
  ]);
  assert.deepEqual(idsOf(await list(`?after=${ids[150]}`)), ids.slice(151));
  assert.deepEqual(
    idsOf(await list(`?after=${ids[150]?.toUpperCase()}&limit=3`)),
    ids.slice(151, 154),
  );
  assert.deepEqual(idsOf(await list('?limit=1')), ids.slice(0, 1));
});

test('pages: after accepts an id that does not exist, and continues at its position', async () => {
  const ids = await fill(10);
  const gone = ids[3] ?? assert.fail();
  assert.equal((await remove(gone)).status, 200);
  assert.deepEqual(idsOf(await list(`?limit=3&after=${gone}`)), ids.slice(4, 7));
  await sql`delete from secrets.secrets where id = ${gone}`;
  assert.deepEqual(idsOf(await list(`?limit=3&after=${gone}`)), ids.slice(4, 7));
  const never = randomUUID();
  assert.deepEqual(
    idsOf(await list(`?limit=20&after=${never}`)),
    ids.filter((id) => id > never && id !== gone),
  );
  const last = await list(`?limit=3&after=${LAST}`);
  assert.deepEqual([last.status, last.text, last.headers.get('link')], [200, '[]', null]);
});

test('pages: ended secrets are on no page and make none shorter', async () => {
  const ids = await fill(30);
  const kept = await keep('x', { max_reads: 1 });
  await decrypt(kept.id, kept.secret);
  for (const id of ids.slice(5, 10)) await remove(id);
  await sql`
    update secrets.secrets set expires_at = now() - interval '1 millisecond'
      where id in ${sql(ids.slice(10, 15))}`;
  const readable = [...ids.slice(0, 5), ...ids.slice(15)];
  assert.deepEqual(await walk('/api/store?limit=4'), [
    readable.slice(0, 4),
    readable.slice(4, 8),
    readable.slice(8, 12),
    readable.slice(12, 16),
    readable.slice(16),
  ]);
});

test('pages: each secret that exists throughout is listed once', async () => {
  for (const limit of [1, 7, 100]) {
    const lasting = await fill(limit === 100 ? 320 : 10 * limit);
    const passing: string[] = [];
    const removed = new Set<string>();
    const pages = await walk(`/api/store?limit=${limit}`, async (page) => {
      for (let count = 0; count < 3; count += 1) passing.push((await keep('passing')).id);
      // Removes earlier ones, also the last one of the page, at which the next page starts.
      const victims = [passing.shift(), page.findLast((id) => passing.includes(id))].filter(
        (id) => id !== undefined,
      );
      for (const id of victims) {
        removed.add(id);
        assert.equal((await remove(id)).status, 200);
      }
    });
    const seen = pages.flat();
    assert.equal(new Set(seen).size, seen.length, 'none twice');
    assert.deepEqual(seen, [...seen].sort(), 'in order');
    assert.deepEqual(
      seen.filter((id) => lasting.includes(id)),
      lasting,
      'each that lived throughout',
    );
    assert.ok(removed.size > 0);
    for (const page of pages.slice(0, -1))
      assert.equal(page.length, limit, 'no page is short but the last');
    await sql`truncate secrets.secrets`;
  }
});

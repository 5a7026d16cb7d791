/** Pages: which rows they hold, what is said of them, and where their links lead. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { linksOf, pageQuery, pageReply, spanOf } from '../../src/identity/paging.ts';
import { queryParameters, validate } from '../../src/http/shape.ts';

const USER = '0190c0de-0000-4000-8000-000000000001';

const paged = (page: number, limit: number, total: number) => {
  const reply = pageReply('/api/session/', { page, limit }, { rows: [1, 2], total }, (row) => `row ${row}`, {});
  assert.ok('data' in reply && reply.pagination && reply.links);
  return { data: reply.data, pagination: reply.pagination, links: reply.links };
};

/** What a database does with a span: it walks from one end, skips, takes, and the rows are put in order again. */
function walk<Row>(rows: readonly Row[], { fromEnd, offset, limit }: ReturnType<typeof spanOf>): Row[] {
  const walked = fromEnd ? [...rows].reverse() : [...rows];
  const found = walked.slice(offset, offset + limit);
  return fromEnd ? found.reverse() : found;
}

const LIMITS = [1, 2, 3, 4, 7, 10, 24, 25, 99, 100];

test('from the nearer end a page holds exactly the rows that it holds when counted from the start', () => {
  for (let total = 0; total <= 130; total += 1) {
    const rows = Array.from({ length: total }, (_, row) => row);
    for (const limit of LIMITS) {
      for (let page = 1; page <= Math.ceil(total / limit) + 2; page += 1) {
        const span = spanOf({ page, limit }, total);
        assert.deepEqual(walk(rows, span), rows.slice((page - 1) * limit, page * limit), `page ${page} of ${limit} of ${total}`);
      }
    }
  }
});

test('no page, however deep, makes the database walk further than to the middle and one page beyond', () => {
  for (const total of [0, 1, 2, 9, 10, 11, 99, 100, 101, 9_999, 1_000_000, 1_000_003, 2 ** 31 - 1]) {
    for (const limit of LIMITS) {
      const pages = Math.ceil(total / limit);
      const middle = Math.floor(pages / 2);
      for (const page of [1, 2, 3, middle - 1, middle, middle + 1, middle + 2, pages - 1, pages, pages + 1, 1_000_000_000].filter((one) => one >= 1)) {
        const { offset, limit: taken } = spanOf({ page, limit }, total);
        assert.ok(offset >= 0 && taken >= 0 && taken <= limit, `page ${page} of ${limit} of ${total}`);
        assert.ok(offset <= total / 2, `page ${page} of ${limit} of ${total} skips ${offset}`);
      }
    }
  }
});

test('the last page is walked from the end, and holds only what is left', () => {
  assert.deepEqual(spanOf({ page: 100_000, limit: 10 }, 1_000_000), { fromEnd: true, offset: 0, limit: 10 });
  assert.deepEqual(spanOf({ page: 3, limit: 10 }, 23), { fromEnd: true, offset: 0, limit: 3 });
});

test('the first page is walked from the start, though the end may be as near', () => {
  // And no further than there are rows.
  for (const total of [1, 5, 10, 11, 1_000_000]) {
    assert.deepEqual(spanOf({ page: 1, limit: 10 }, total), { fromEnd: false, offset: 0, limit: Math.min(10, total) });
  }
});

test('of a page past the end nothing is read', () => {
  for (const [page, total] of [[2, 10], [3, 10], [1_000_000_000, 1_000_000], [1, 0], [2, 0]] as const) {
    assert.equal(spanOf({ page, limit: 10 }, total).limit, 0, `page ${page} of ${total}`);
  }
});

test('where nothing is said it is the first page, of ten', () => {
  const read = (query: Record<string, string[]>) => validate(queryParameters(pageQuery), new Map(Object.entries(query)), '');
  assert.deepEqual(read({}), { ok: true, value: { page: 1, limit: 10 } });
  assert.deepEqual(read({ page: ['7'], limit: ['100'] }), { ok: true, value: { page: 7, limit: 100 } });
  for (const query of [{ page: ['0'] }, { limit: ['0'] }, { limit: ['101'] }, { page: ['1000000001'] }]) assert.equal(read(query).ok, false, JSON.stringify(query));
});

test('a page shows its rows, and counts pages up; there are none where there is nothing', () => {
  const table: ReadonlyArray<[total: number, limit: number, pages: number]> = [
    [0, 10, 0], [1, 10, 1], [9, 10, 1], [10, 10, 1], [11, 10, 2], [20, 10, 2], [21, 10, 3], [3, 1, 3], [100, 100, 1], [101, 100, 2],
  ];
  for (const [total, limit, total_pages] of table) {
    const { data, pagination } = paged(7, limit, total);
    assert.deepEqual(data, ['row 1', 'row 2']);
    assert.deepEqual(pagination, { page: 7, limit, total, total_pages });
  }
});

/** Page of how many: the pages that first, last, prev and next lead to; 0 for nowhere. */
const LINKS: ReadonlyArray<[page: number, pages: number, first: number, last: number, prev: number, next: number]> = [
  [1, 0, 1, 1, 0, 0],
  [1, 1, 1, 1, 0, 0],
  [1, 2, 1, 2, 0, 2],
  [2, 2, 1, 2, 1, 0],
  [2, 3, 1, 3, 1, 3],
  [3, 3, 1, 3, 2, 0],
  // Past the end: back to the last page that there is, and to the first where there is none.
  [4, 3, 1, 3, 3, 0],
  [9, 3, 1, 3, 3, 0],
  [1_000_000_000, 3, 1, 3, 3, 0],
  [2, 1, 1, 1, 1, 0],
  [2, 0, 1, 1, 1, 0],
  [9, 0, 1, 1, 1, 0],
];

for (const [page, pages, first, last, prev, next] of LINKS) {
  test(`the links of page ${page} of ${pages}`, () => {
    const to = (number: number) => (number === 0 ? '' : `/api/session/?page=${number}&limit=10`);
    assert.deepEqual(paged(page, 10, pages * 10).links, { first: to(first), last: to(last), prev: to(prev), next: to(next) });
  });
}

test('the links keep path, limit and filters, and leave out a filter that is not set', () => {
  const { pagination } = paged(2, 3, 9);
  const links = linksOf('/api/session', pagination, { user: USER, active: 'true' });
  const rest = `limit=3&user=${USER}&active=true`;
  assert.deepEqual(links, { first: `/api/session?page=1&${rest}`, last: `/api/session?page=3&${rest}`, prev: `/api/session?page=1&${rest}`, next: `/api/session?page=3&${rest}` });
  assert.equal(linksOf('/api/session', pagination, { user: undefined, active: 'false' }).first, '/api/session?page=1&limit=3&active=false');
  assert.equal(linksOf('/api/session', pagination, { user: undefined }).first, '/api/session?page=1&limit=3');
  assert.equal(linksOf('/api/session', pagination, { user: 'a&b=c d' }).first, '/api/session?page=1&limit=3&user=a%26b%3Dc+d');
});

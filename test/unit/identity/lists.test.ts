/** Pages: which rows they hold, what is said of them, and where their links lead. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pageQuery, pageReply } from '../../../src/identity/lists.ts';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { queryParameters, validate } from '../../../src/platform/http/route/schema.ts';

const USER = '0190c0de-0000-4000-8000-000000000001';

const paged = (page: number, limit: number, total: number) => {
  const reply = pageReply(
    '/api/session/',
    { page, limit },
    { rows: [1, 2], total },
    (row) => `row ${row}`,
  );
  assert.ok('data' in reply && reply.pagination && reply.links);
  return { data: reply.data, pagination: reply.pagination, links: reply.links };
};

test('by default, the reply is the first page with ten rows', () => {
  const read = (query: Record<string, string>) =>
    validate(queryParameters(pageQuery), new URLSearchParams(query), 'invalid_query');
  assert.deepEqual(read({}), { page: 1, limit: 10 });
  assert.deepEqual(read({ page: '7', limit: '100' }), { page: 7, limit: 100 });
  for (const query of [{ page: '0' }, { limit: '0' }, { limit: '101' }, { page: '1000000001' }])
    assert.ok(read(query) instanceof Failure, JSON.stringify(query));
});

test('a page has its rows and the page counts; an empty list has no pages', () => {
  const table: ReadonlyArray<[total: number, limit: number, pages: number]> = [
    [0, 10, 0],
    [1, 10, 1],
    [9, 10, 1],
    [10, 10, 1],
    [11, 10, 2],
    [20, 10, 2],
    [21, 10, 3],
    [3, 1, 3],
    [100, 100, 1],
    [101, 100, 2],
  ];
  for (const [total, limit, total_pages] of table) {
    const { data, pagination } = paged(7, limit, total);
    assert.deepEqual(data, ['row 1', 'row 2']);
    assert.deepEqual(pagination, { page: 7, limit, total, total_pages });
  }
});

/** Page of how many: the pages that first, last, prev and next lead to; 0 for nowhere. */
const LINKS: ReadonlyArray<
  [page: number, pages: number, first: number, last: number, prev: number, next: number]
> = [
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
    assert.deepEqual(paged(page, 10, pages * 10).links, {
      first: to(first),
      last: to(last),
      prev: to(prev),
      next: to(next),
    });
  });
}

test('the links keep path, limit and filters, and leave out a filter that is not set', () => {
  const linksOf = (filter: Record<string, string | undefined>) => {
    const query = { page: 2, limit: 3, ...filter };
    return pageReply('/api/session', query, { rows: [], total: 9 }, String).links;
  };
  const links = linksOf({ user: USER, active: 'true' });
  const rest = `limit=3&user=${USER}&active=true`;
  assert.deepEqual(links, {
    first: `/api/session?page=1&${rest}`,
    last: `/api/session?page=3&${rest}`,
    prev: `/api/session?page=1&${rest}`,
    next: `/api/session?page=3&${rest}`,
  });
  assert.equal(
    linksOf({ user: undefined, active: 'false' }).first,
    '/api/session?page=1&limit=3&active=false',
  );
  assert.equal(linksOf({ user: undefined }).first, '/api/session?page=1&limit=3');
  assert.equal(linksOf({ user: 'a&b=c d' }).first, '/api/session?page=1&limit=3&user=a%26b%3Dc+d');
});

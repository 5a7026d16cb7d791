import assert from 'node:assert/strict';
import type { Answer } from './gatehouse.ts';
import { assertSuccess } from './users.ts';

/**
 * The pages of a list have all of it in order, without a gap or overlap, and the links lead through
 * them. Pages past the end are empty, and lead back.
 * @param expected the ids of all
 * @param filter further parameters, which the links keep
 */
export async function assertPages(
  read: (path: string) => Promise<Answer>,
  path: string,
  limit: number,
  expected: readonly string[],
  filter = '',
): Promise<void> {
  const total = expected.length;
  const pages = Math.ceil(total / limit);
  const at = (page: number) => `${path}?page=${page}&limit=${limit}${filter}`;
  const seen: string[] = [];
  const numbers = Array.from({ length: pages + 1 }, (_, index) => index + 1);
  for (const page of [...numbers, 1_000_000_000]) {
    const answer = await read(at(page));
    assertSuccess(answer, 'paged');
    const { data, _meta, _links } = answer.json;
    assert.deepEqual(_meta.pagination, { page, limit, total, total_pages: pages });
    assert.deepEqual(_links, {
      first: at(1),
      last: at(Math.max(1, pages)),
      prev: page > 1 ? at(Math.max(1, Math.min(page - 1, pages))) : '',
      next: page < pages ? at(page + 1) : '',
    });
    assert.equal(data.length, Math.max(0, Math.min(limit, total - (page - 1) * limit)));
    seen.push(...data.map(({ id }: { id: string }) => id));
  }
  assert.deepEqual(seen, expected);
}

import type { Pagination, Reply } from '../http/call.ts';
import { decimal, withDefault } from '../http/shape.ts';
import type { Page, PageOf } from './store/rows.ts';

/** The parameters of every paged list. */
export const page = decimal({ min: 1, max: 1_000_000_000 });
export const limit = decimal({ min: 1, max: 100 });
export const FIRST_PAGE: Page = { page: 1, limit: 10 };
export const pageQuery = { page: withDefault(page, FIRST_PAGE.page), limit: withDefault(limit, FIRST_PAGE.limit) };

type Filter = Readonly<Record<string, string | undefined>>;

/** @param filter the other parameters of the query, kept in the links */
export function pageReply<Row, View>(
  path: string, { page, limit }: Page, { rows, total }: PageOf<Row>, view: (row: Row) => View, filter: Filter,
): Reply<View[]> {
  const pagination = { page, limit, total, total_pages: Math.ceil(total / limit) };
  return { data: rows.map(view), pagination, links: linksOf(path, pagination, filter) };
}

/** Path and query of the neighboring pages; the empty string where there is none. */
export function linksOf(path: string, { page, limit, total_pages: pages }: Pagination, filter: Filter) {
  const to = (number: number) => {
    const query = new URLSearchParams({ page: String(number), limit: String(limit) });
    for (const [name, value] of Object.entries(filter)) if (value !== undefined) query.set(name, value);
    return `${path}?${query}`;
  };
  return {
    first: to(1),
    last: to(Math.max(1, pages)),
    // Past the end, `prev` leads to the last page that exists.
    prev: page > 1 ? to(Math.max(1, Math.min(page - 1, pages))) : '',
    next: page < pages ? to(page + 1) : '',
  };
}

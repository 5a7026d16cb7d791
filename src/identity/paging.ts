import type { Reply } from '../http/call.ts';
import { decimal, withDefault } from '../http/shape.ts';
import type { Page, PageOf } from './store/rows.ts';

/** The parameters of every paged list. */
export const page = decimal({ min: 1, max: 1_000_000_000 });
export const limit = decimal({ min: 1, max: 100 });
export const FIRST_PAGE: Page = { page: 1, limit: 10 };
export const pageQuery = {
  page: withDefault(page, FIRST_PAGE.page),
  limit: withDefault(limit, FIRST_PAGE.limit),
};

/** @param query with the other parameters of the list, which the links keep: path and query, or empty for none */
export function pageReply<Row, View>(
  path: string,
  query: Page & Readonly<Record<string, string | number | undefined>>,
  { rows, total }: PageOf<Row>,
  view: (row: Row) => View,
): Reply<View[]> {
  const { page, limit } = query;
  const pages = Math.ceil(total / limit);
  const to = (number: number) => {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...query, page: number })) {
      if (value !== undefined) parameters.set(name, String(value));
    }
    return `${path}?${parameters}`;
  };
  const links = {
    first: to(1),
    last: to(Math.max(1, pages)),
    // Past the end, `prev` leads to the last page that exists.
    prev: page > 1 ? to(Math.max(1, Math.min(page - 1, pages))) : '',
    next: page < pages ? to(page + 1) : '',
  };
  return { data: rows.map(view), pagination: { page, limit, total, total_pages: pages }, links };
}

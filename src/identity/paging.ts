import type { Pagination, Reply } from '../http/call.ts';
import { decimal, withDefault } from '../http/shape.ts';

/** The parameters of every paged list. */
export const page = decimal({ min: 1, max: 1_000_000_000 });
export const limit = decimal({ min: 1, max: 100 });
/** What is read where a parameter is left out. */
export const FIRST_PAGE = { page: 1, limit: 10 } as const;
export const pageQuery = { page: withDefault(page, FIRST_PAGE.page), limit: withDefault(limit, FIRST_PAGE.limit) };

export interface Page {
  readonly page: number;
  readonly limit: number;
}

/** Some rows of a list, and how many it has in all. */
export interface Part<Row> {
  readonly rows: readonly Row[];
  readonly total: number;
}

/** Where a page lies. */
export interface Span {
  /** Counted from the list's end, in reverse. */
  readonly fromEnd: boolean;
  readonly offset: number;
  readonly limit: number;
}

/** From the nearer end, so that the database never walks over more than half of a list. */
export function spanOf({ page, limit }: Page, total: number): Span {
  const offset = (page - 1) * limit;
  const behind = Math.max(0, total - offset - limit);
  if (offset >= total) return { fromEnd: false, offset: 0, limit: 0 };
  // No further than there are rows: to look for one more would be to read the rest of the index.
  if (offset <= behind) return { fromEnd: false, offset, limit: Math.min(limit, total - offset) };
  return { fromEnd: true, offset: behind, limit: total - offset - behind };
}

/** @param filter the other parameters of the query, kept in the links */
export function pageReply<Row, View>(
  path: string,
  { page, limit }: Page,
  { rows, total }: Part<Row>,
  view: (row: Row) => View,
  filter: Readonly<Record<string, string | undefined>>,
): Reply<View[]> {
  const pagination = { page, limit, total, total_pages: Math.ceil(total / limit) };
  return { data: rows.map(view), pagination, links: linksOf(path, pagination, filter) };
}

/** Path and query of the neighbouring pages, filter kept; the empty string where there is none. */
export function linksOf(path: string, { page, limit, total_pages: pages }: Pagination, filter: Readonly<Record<string, string | undefined>>): Record<'first' | 'last' | 'prev' | 'next', string> {
  const to = (number: number) => {
    const query = new URLSearchParams({ page: String(number), limit: String(limit) });
    for (const [name, value] of Object.entries(filter)) if (value !== undefined) query.set(name, value);
    return `${path}?${query}`;
  };
  return {
    first: to(1),
    last: to(Math.max(1, pages)),
    // From beyond the end, the way back leads to the last page that there is.
    prev: page > 1 ? to(Math.max(1, Math.min(page - 1, pages))) : '',
    next: page < pages ? to(page + 1) : '',
  };
}

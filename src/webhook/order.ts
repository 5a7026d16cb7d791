import { isPlace, isPointer, type Places } from './places.ts';
import { type CustomSource, type Source, type SourceName, SOURCES } from './sources.ts';

/** @returns the source of a token, with its order */
export function sourceOf({
  source,
  custom,
  order_by = null,
}: Readonly<{ source: SourceName; custom: CustomSource | null; order_by?: string | null }>) {
  const own: Source = custom ? { ...SOURCES.custom, ...custom } : SOURCES[source];
  return order_by === null ? own : { ...own, order: orderPlaces(own, order_by) };
}

export const ORDER_FORM =
  'none, default, a header, or a JSON pointer into the body, such as /data/customer';

/** @returns how it is stored, or undefined */
export function parseOrder(text: string) {
  const place = isPointer(text) ? text : text.toLowerCase();
  return isPlace(place) ? place : undefined;
}

function orderPlaces({ subject = [] }: Source, order_by: string): Places {
  if (order_by === 'none') return [];
  return order_by === 'default' ? subject : [order_by];
}

/** @returns what is wrong with the order of a token, or null */
export const orderProblem = (
  { source, custom }: Parameters<typeof sourceOf>[0],
  order_by: string | null | undefined,
) =>
  order_by === 'default' && sourceOf({ source, custom }).subject === undefined
    ? `source ${source} has no default; give a header or a JSON pointer`
    : null;

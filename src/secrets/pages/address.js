/** The address of a page that a link leads to. */
import { findLink } from '/pages/link.js';

/** @import { Kind } from '/pages/link.js' */

/**
 * Takes the keys out of the address, also out of the path or the query, where a program that has
 * encoded the # has put them: nobody reads or copies them there, and no later request sends them.
 * The tab keeps them for a reload.
 * @param {Kind} kind of the page
 * @returns null unless the link is whole
 */
export function takeLink(kind) {
  const found = findLink(location.href, [kind]);
  if (found) history.replaceState({ keys: found.keys }, '', `/${kind}/${found.id}`);
  const [, id] = /([0-9a-f-]{36})\/?$/i.exec(location.pathname) ?? [];
  const keys = history.state?.keys;
  return id && typeof keys === 'string' ? { id: id.toLowerCase(), keys } : null;
}

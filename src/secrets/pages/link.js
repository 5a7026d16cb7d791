/**
 * Finds the links of this service in a text, in a browser and in the command line. On its way to
 * the recipient, programs encode, break, extend and wrap a link. What they leave whole is read.
 */

/** @typedef {keyof typeof KEYS} Kind the first part of the path */
/**
 * @typedef {{ base: string, kind: Kind, id: string, keys: string }} Link `base` is what is before
 * the path, empty if the text begins with the path; `keys` is what follows the #
 */

const ID = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}';
const KEYS = {
  s: String.raw`1\.[\w-]{43}\.[\w-]{48}|[\w-]{43}`,
  r: String.raw`[\w-]{43}`,
  request: String.raw`1\.[\w-]{43}\.[\w-]{43}\.[\w-]{48}`,
  answer: String.raw`1\.[\w-]{43}`,
};
/** No empty part: where a second address follows a first one, the link begins with it. */
const BASE = String.raw`https?://[^\s/?#]+(?:/[^\s/?#]+)*`;
/** Proofpoint writes a * for it, East Asian keyboards a wide sign, others an entity of HTML. */
const HASH = '[#＃*]+(?:(?:35|x23);)?';
/**
 * Programs add parameters before the #. The characters of a sentence or of quotes may follow the
 * keys, but no others: a part of other keys is no key.
 * @param {Kind} kind
 */
const formOf = (kind) =>
  new RegExp(
    `(${BASE}|^)/${kind}/(${ID})(?:[/?&;][^#]*)?${HASH}(${KEYS[kind]})(?![._-]*[a-z0-9])`,
    'i',
  );

/** How often programs in a row may have encoded a link. */
const MAX_DECODED = 5;

/**
 * @param {string} text
 * @param {readonly Kind[]} kinds that are looked for
 * @returns {Link | null} the first whole link, as it was sent
 */
export function findLink(text, kinds) {
  let decoded = fromProofpoint(text);
  for (let times = 0; times <= MAX_DECODED; times += 1) {
    for (const one of [decoded, withoutBreaks(decoded)]) {
      const found = kinds.map((kind) => matchLink(one, kind)).find((link) => link !== null);
      if (found) return found;
    }
    decoded = decoded.replace(/(%[0-9a-f]{2})+/gi, decode);
  }
  return null;
}

/** @param {string} text @param {Kind} kind @returns {Link | null} */
function matchLink(text, kind) {
  const [, base = '', id, keys] = formOf(kind).exec(text) ?? [];
  return id && keys ? { base, kind, id: id.toLowerCase(), keys } : null;
}

/** @param {string} escapes */
function decode(escapes) {
  try {
    return decodeURIComponent(escapes);
  } catch {
    return escapes;
  }
}

/** URL Defense, version 2, has an encoding of its own. @param {string} text */
const fromProofpoint = (text) =>
  text.replace(
    /([?&]u=http)(s?-3A__[\w.%-]+)/gi,
    (_, start, rest) => start + rest.replaceAll('_', '/').replaceAll('-', '%'),
  );

/**
 * Removes line breaks with their marks (quoted-printable, RFC 2045, 6.7; replies), spaces, the
 * backslashes of Markdown, and characters that nobody sees, and makes a hyphen of each dash. Before
 * the path only the first kind: the name of a host with a space in it is not another name.
 * @param {string} text
 */
const withoutBreaks = (text) =>
  text.replace(/=\s*\n\s*/g, '').replace(
    /(\/(?:s|r|request|answer)\/)(.*)/s,
    (_, start, rest) =>
      start +
      rest
        .replace(/\p{Pd}/gu, '-')
        .replace(/(-[0-9a-f]{12})=23/i, '$1#')
        .replace(/[=>\\\s\p{Cc}\p{Default_Ignorable_Code_Point}]/gu, ''),
  );

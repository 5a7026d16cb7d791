/**
 * Whether a name matches a pattern in which `*` stands for any characters. Searches piece by piece, in linear time: a
 * regular expression could take minutes for a crafted event name.
 * @param {string} pattern
 * @param {string} name
 */
export function matchesPattern(pattern, name) {
  const [first = '', ...pieces] = pattern.split('*');
  const last = pieces.pop();
  if (last === undefined) return name === pattern;
  if (!name.startsWith(first)) return false;
  let end = first.length;
  for (const piece of pieces) {
    const found = name.indexOf(piece, end);
    if (found < 0) return false;
    end = found + piece.length;
  }
  return name.endsWith(last) && name.length - last.length >= end;
}

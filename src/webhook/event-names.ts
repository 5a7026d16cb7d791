/** @param patterns event names in which `*` stands for any characters; none selects every event */
export const isSelected = (patterns: readonly string[], event: string) =>
  patterns.length === 0 || patterns.some((pattern) => matches(pattern, event));

/**
 * Searches piece by piece: a regular expression could take exponential time for a crafted event
 * name.
 */
function matches(pattern: string, event: string) {
  const [first = '', ...pieces] = pattern.split('*');
  const last = pieces.pop();
  if (last === undefined) return event === pattern;
  if (!event.startsWith(first)) return false;
  let end = first.length;
  for (const piece of pieces) {
    const found = event.indexOf(piece, end);
    if (found < 0) return false;
    end = found + piece.length;
  }
  return event.endsWith(last) && event.length - last.length >= end;
}

/** The words of a text, for long lists of short words. */
export const wordsOf = (text: string): string[] => text.trim().split(/\s+/);

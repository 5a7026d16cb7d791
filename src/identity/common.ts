import { readFileSync } from 'node:fs';

let words: ReadonlySet<string> | null = null;

/**
 * The 3,000 most common passwords of at least eight characters (ASVS 6.2.4), in lower case. Source: the list of ten
 * million passwords that Mark Burnett made public in 2015, as ranked in the data of zxcvbn 4.4.2. Read at the first
 * use, because few processes ever set a password.
 */
export function commonPasswords(): ReadonlySet<string> {
  words ??= new Set(readFileSync(new URL('common-passwords.txt', import.meta.url), 'utf8').trimEnd().split('\n'));
  return words;
}

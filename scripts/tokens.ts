/** Splits TypeScript into tokens, to count what there is to read and to find packed forms. */

/**
 * - `sql`: a word or mark of an SQL statement.
 * - `template`: the text of any other template.
 * - `hole`: the beginning or the end of `${…}`. It pairs brackets and is never counted.
 */
type Kind = 'word' | 'mark' | 'string' | 'pattern' | 'sql' | 'template' | 'hole';

export interface Token {
  readonly text: string;
  readonly kind: Kind;
  /** The offset of its first character. */
  readonly at: number;
  /** From 1. */
  readonly line: number;
  /** Whether white space stands before it. */
  readonly isSpaced: boolean;
}

const SPACE = /\s+|\/\/[^\n]*|\/\*[\s\S]*?\*\//y;
const STRING = /'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"/y;
const WORD = /[\w$#]+(?:\.\d+)?/y;
const MARK =
  />>>=|\.\.\.|[=!]==|\*\*=|<<=|>>=|&&=|\|\|=|\?\?=|=>|[=!<>]=|&&|\|\||\?\?|\?\.|\+\+|--|[-+*/%&|^]=|\*\*|[^\s]/y;
const PATTERN = /\/(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/y;
const TEMPLATE_TEXT = /(?:\\[\s\S]|\$(?!\{)|[^`\\$])+/y;
/** What may stand before a regular expression. After anything else, `/` divides. */
const BEFORE_PATTERN = /^([(,=:[!&|?{};+\-*%<>~^]|=>|&&|\|\||\?\?|[!=]==?|return|typeof|case|in)$/;
/** The compiler puts a space before the template. */
const SQL_TAG = /\bsql(<[^`]*>)? ?$/;
const SQL_VERB = /^['`]\s*(select|insert|update|delete|create|alter|drop|with)\s+[a-z(]/;
const SQL_COMMENT = /--.*$/gm;
const SQL_WORD = /'[^']*'|\w+|[^\s\w]/g;

interface Scanner {
  readonly text: string;
  readonly tokens: Token[];
  at: number;
  line: number;
  isSpaced: boolean;
}

export function tokenize(text: string): readonly Token[] {
  const scanner: Scanner = { text, tokens: [], at: 0, line: 1, isSpaced: false };
  readCode(scanner, false);
  return scanner.tokens;
}

/**
 * What there is to read. A word, a number, a mark or operator, and a string are one token each.
 * Comments are none, and neither is the comma that the formatter puts at the end of a broken list.
 * The text of an SQL statement counts word by word; any other template text is one token.
 */
export function countTokens(text: string): number {
  const tokens = tokenize(text).filter(({ kind }) => kind !== 'hole');
  return tokens.filter((token, at) => !isTrailingComma(token, tokens[at + 1])).length;
}

/** As the text of a statement in TypeScript: a comment counts nothing. */
export const countSqlTokens = (text: string): number =>
  text.replace(SQL_COMMENT, '').match(SQL_WORD)?.length ?? 0;

const isTrailingComma = (token: Token, next: Token | undefined): boolean =>
  token.kind === 'mark' && token.text === ',' && /^[)\]}]$/.test(next?.text ?? '');

/** @param inHole whether to stop at the brace that ends `${…}` */
function readCode(scanner: Scanner, inHole: boolean): void {
  let depth = 0;
  while (scanner.at < scanner.text.length) {
    const space = match(scanner, SPACE);
    if (space !== undefined) {
      moveOver(scanner, space);
      scanner.isSpaced = true;
      continue;
    }
    const next = scanner.text[scanner.at];
    if (next === '`') {
      readTemplate(scanner);
      continue;
    }
    if (inHole && next === '}' && depth === 0) return;
    if (next === '{') depth += 1;
    if (next === '}') depth -= 1;
    readToken(scanner);
  }
}

function readToken(scanner: Scanner): void {
  const string = match(scanner, STRING);
  if (string !== undefined) {
    if (SQL_VERB.test(string)) addSql(scanner, string.slice(1, -1), scanner.at + 1);
    else add(scanner, 'string', string);
    moveOver(scanner, string);
    return;
  }
  const previous = scanner.tokens.at(-1);
  const mayBePattern = !previous || previous.kind === 'hole' || BEFORE_PATTERN.test(previous.text);
  const pattern = mayBePattern ? match(scanner, PATTERN) : undefined;
  if (pattern !== undefined) {
    add(scanner, 'pattern', pattern);
    moveOver(scanner, pattern);
    return;
  }
  const word = match(scanner, WORD);
  const text = word ?? match(scanner, MARK) ?? '';
  add(scanner, word === undefined ? 'mark' : 'word', text);
  moveOver(scanner, text);
}

function readTemplate(scanner: Scanner): void {
  const { text } = scanner;
  const isTagged = SQL_TAG.test(text.slice(Math.max(0, scanner.at - 400), scanner.at));
  const isSql = isTagged || SQL_VERB.test(text.slice(scanner.at, scanner.at + 80));
  if (!isSql) add(scanner, 'template', '`');
  scanner.at += 1;
  while (scanner.at < text.length && text[scanner.at] !== '`') {
    const part = match(scanner, TEMPLATE_TEXT) ?? '';
    if (isSql) addSql(scanner, part, scanner.at);
    moveOver(scanner, part);
    if (text.startsWith('${', scanner.at)) readHole(scanner);
  }
  scanner.at += 1;
}

function readHole(scanner: Scanner): void {
  add(scanner, 'hole', '${');
  scanner.at += 2;
  readCode(scanner, true);
  add(scanner, 'hole', '}');
  scanner.at += 1;
}

function match({ text, at }: Scanner, pattern: RegExp): string | undefined {
  pattern.lastIndex = at;
  return pattern.exec(text)?.[0];
}

function moveOver(scanner: Scanner, passed: string): void {
  scanner.at += passed.length;
  for (let end = passed.indexOf('\n'); end >= 0; end = passed.indexOf('\n', end + 1))
    scanner.line += 1;
}

function add(scanner: Scanner, kind: Kind, text: string): void {
  const { at, line, isSpaced } = scanner;
  scanner.tokens.push({ text, kind, at, line, isSpaced });
  scanner.isSpaced = false;
}

/**
 * Each word gets the line on which it stands.
 * @param from the offset of the statement
 */
function addSql(scanner: Scanner, sql: string, from: number): void {
  let start = from;
  sql.split('\n').forEach((line, index) => {
    for (const { 0: text, index: column } of line.replace(SQL_COMMENT, '').matchAll(SQL_WORD)) {
      const at = start + column;
      scanner.tokens.push({ text, kind: 'sql', at, line: scanner.line + index, isSpaced: true });
    }
    start += line.length + 1;
  });
}

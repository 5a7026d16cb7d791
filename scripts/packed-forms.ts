/** Finds forms that pack several decisions into one line. They assume the layout of Prettier. */
import { type Token, tokenize } from './tokens.ts';

export const LIMITS = { fileLines: 300, functionLines: 60, columns: 100 } as const;

/** @returns each packed form as `file:line: what it is` */
export function findPackedForms(file: string, text: string): string[] {
  const tokens = tokenize(text);
  const found = [
    ...findLiteralDestructurings(tokens),
    ...findNestedConditionals(tokens),
    ...findAssignmentsAsValues(tokens),
    ...findDecisionsAsStatements(tokens),
    ...findVoidExpressions(tokens),
  ];
  return found
    .sort((one, other) => one.line - other.line)
    .map(({ line, problem }) => `${file}:${line}: ${problem}`);
}

interface Finding {
  readonly line: number;
  readonly problem: string;
}

const CLOSING: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}', '${': '}' };
const isOpening = ({ text, kind }: Token) =>
  (kind === 'mark' || kind === 'hole') && Object.hasOwn(CLOSING, text);
const isClosing = ({ text, kind }: Token) =>
  (kind === 'mark' || kind === 'hole') && (text === ')' || text === ']' || text === '}');
const isMark = (token: Token | undefined, ...texts: readonly string[]) =>
  token?.kind === 'mark' && texts.includes(token.text);

/** @param at of an opening bracket @returns the index of its closing one */
function closingOf(tokens: readonly Token[], at: number): number {
  let depth = 0;
  for (let index = at; index < tokens.length; index += 1) {
    const token = tokens[index];
    if (token && isOpening(token)) depth += 1;
    if (token && isClosing(token)) depth -= 1;
    if (depth === 0) return index;
  }
  return tokens.length;
}

/** `const [a, b] = [x, y]`, `[a, b] = [b, a]` and `const { a } = { a: x }`. */
function findLiteralDestructurings(tokens: readonly Token[]): Finding[] {
  return tokens.flatMap((token, at) => {
    if (!isMark(token, '[', '{')) return [];
    const before = tokens[at - 1];
    const isDeclared = before?.kind === 'word' && /^(const|let|var)$/.test(before.text);
    const isStatement = token.text === '[' && (!before || isMark(before, ';', '{', '}', ')'));
    if (!isDeclared && !isStatement) return [];
    const end = closingOf(tokens, at);
    const isLiteral = isMark(tokens[end + 1], '=') && isMark(tokens[end + 2], token.text);
    return isLiteral ? [{ line: token.line, problem: 'a literal is destructured' }] : [];
  });
}

/** A conditional with another one in its condition, in a branch, or in an argument of these. */
function findNestedConditionals(tokens: readonly Token[]): Finding[] {
  const found: Finding[] = [];
  /**
   * For each open bracket: whether a conditional is open there, and whether one has ended there.
   */
  const frames = [{ isBlock: true, isOpen: false, hasEnded: false }];
  tokens.forEach((token, at) => {
    const frame = frames.at(-1);
    if (!frame) return;
    if (isOpening(token)) {
      const isBlock = token.text === '{' && isMark(tokens[at - 1], '=>', ')');
      frames.push({ isBlock, isOpen: false, hasEnded: false });
      return;
    }
    if (isClosing(token)) {
      frames.pop();
      const outer = frames.at(-1);
      const isConditional = frame.isOpen || frame.hasEnded;
      if (outer && isConditional && !frame.isBlock) outer.hasEnded = true;
      return;
    }
    if (isMark(token, ',', ';', '=', '=>') || token.text === 'return') {
      frame.isOpen = false;
      frame.hasEnded = false;
      return;
    }
    // An optional member or parameter has no space before its mark.
    if (!isMark(token, '?') || !token.isSpaced) return;
    const blockAt = frames.findLastIndex(({ isBlock }) => isBlock);
    const isNested = frame.hasEnded || frames.slice(blockAt).some(({ isOpen }) => isOpen);
    if (isNested) found.push({ line: token.line, problem: 'a conditional inside a conditional' });
    frame.isOpen = true;
  });
  return found;
}

const ASSIGNMENTS = ['=', '+=', '-=', '*=', '/=', '%=', '&=', '|=', '^=', '&&=', '||=', '??='];

/** `(a = b)`, `() => (a = b)` and `a = b = c`. */
function findAssignmentsAsValues(tokens: readonly Token[]): Finding[] {
  const found: Finding[] = [];
  const opened: number[] = [];
  tokens.forEach((token, at) => {
    if (isOpening(token)) opened.push(at);
    if (isClosing(token)) opened.pop();
    if (!isMark(token, ...ASSIGNMENTS)) return;
    const bracketAt = opened.at(-1);
    const isInParentheses = bracketAt !== undefined && isMark(tokens[bracketAt], '(');
    if (isInParentheses && !isParameterList(tokens, bracketAt)) {
      found.push({ line: token.line, problem: 'an assignment is used as a value' });
    }
    if (isChained(tokens, at)) found.push({ line: token.line, problem: 'assignments are chained' });
  });
  return found;
}

/** The defaults of parameters look like assignments, and so do those of a loop's variables. */
function isParameterList(tokens: readonly Token[], at: number): boolean {
  if (tokens[at - 1]?.text === 'for') return true;
  return isMark(tokens[closingOf(tokens, at) + 1], '=>', '{', ':');
}

function isChained(tokens: readonly Token[], at: number): boolean {
  const isTarget = (token: Token | undefined) =>
    token?.kind === 'word' || isMark(token, '.', '?.', '[');
  let index = at + 1;
  while (isTarget(tokens[index])) {
    index = isMark(tokens[index], '[') ? closingOf(tokens, index) + 1 : index + 1;
  }
  return index > at + 1 && isMark(tokens[index], ...ASSIGNMENTS);
}

const STATEMENT_WORDS =
  /^(const|let|var|return|if|else|for|while|do|switch|case|default|throw|try|catch|finally|import|export|type|interface|function|async|class|declare|break|continue|yield|static|readonly|private)$/;

/** `a && f();`, `a || f();` and `a ? f() : g();`. */
function findDecisionsAsStatements(tokens: readonly Token[]): Finding[] {
  return statementStarts(tokens).flatMap((start) => {
    const first = tokens[start];
    if (!first || STATEMENT_WORDS.test(first.text)) return [];
    for (let at = start; at < tokens.length; at += 1) {
      const token = tokens[at];
      if (!token || isClosing(token)) return [];
      // Only what is outside of brackets decides.
      if (isOpening(token)) {
        at = closingOf(tokens, at);
        continue;
      }
      if (isMark(token, ';', ',', ':', '=>', ...ASSIGNMENTS)) return [];
      const decides = isMark(token, '&&', '||', '??') || (isMark(token, '?') && token.isSpaced);
      if (decides) return [{ line: first.line, problem: 'a decision is used as a statement' }];
    }
    return [];
  });
}

/** The first token of each statement: on a line of its own, or after a condition. */
function statementStarts(tokens: readonly Token[]): number[] {
  const opened: number[] = [];
  let lastOpened = -1;
  return tokens.flatMap((token, at) => {
    const before = tokens[at - 1];
    const bracketAt = opened.at(-1);
    const isInParentheses = bracketAt !== undefined && isMark(tokens[bracketAt], '(', '[');
    if (isOpening(token)) opened.push(at);
    if (isClosing(token)) lastOpened = opened.pop() ?? -1;
    if (!before) return [at];
    if (isInParentheses || token.kind !== 'word') return [];
    if (isMark(before, ')')) return isCondition(tokens[lastOpened - 1]) ? [at] : [];
    if (before.text === 'else') return [at];
    return before.line < token.line && isMark(before, ';', '{', '}') ? [at] : [];
  });
}

const isCondition = (before: Token | undefined): boolean =>
  before !== undefined && /^(if|for|while)$/.test(before.text);

/** `void` before an expression, unless it begins a statement. As a type it stands alone. */
function findVoidExpressions(tokens: readonly Token[]): Finding[] {
  const starts = new Set(statementStarts(tokens));
  return tokens.flatMap((token, at) => {
    if (token.kind !== 'word' || token.text !== 'void' || starts.has(at)) return [];
    const next = tokens[at + 1];
    const isOperator = next?.kind === 'word' || isMark(next, '(');
    return isOperator ? [{ line: token.line, problem: 'void is used in an expression' }] : [];
  });
}

/** @returns each function of more than 60 lines without its SQL, as `file:line: how long it is` */
export function findLongFunctions(file: string, text: string): string[] {
  const lines = text.split('\n');
  const sqlLines = linesOfSql(text);
  return lines.flatMap((line, at) => {
    if (!opensFunction(line)) return [];
    const start = headOf(lines, at);
    const end = endOf(lines, at);
    const counted = lines.slice(start, end + 1).filter((_, index) => !sqlLines.has(start + index));
    if (counted.length <= LIMITS.functionLines) return [];
    return [`${file}:${start + 1}: a function of ${counted.length} lines`];
  });
}

/** Lines that hold SQL and nothing else, from 0. */
function linesOfSql(text: string): ReadonlySet<number> {
  const tokens = tokenize(text);
  const isCode = new Set(tokens.filter(({ kind }) => kind !== 'sql').map(({ line }) => line - 1));
  const sql = tokens.filter(({ kind }) => kind === 'sql').map(({ line }) => line - 1);
  return new Set(sql.filter((line) => !isCode.has(line)));
}

const NO_FUNCTION = /^\s*(\} )?(if|else|for|while|switch|catch|try|finally|do|return)\b/;

/** An arrow that ends its line or opens a bracket there, a declaration, or a method. */
function opensFunction(line: string): boolean {
  if (/^\s*(\/\/|\*|\/\*)/.test(line)) return false;
  if (/=>( [^;]*)?[({[]$|=>$/.test(line)) return true;
  if (!line.endsWith('{') || NO_FUNCTION.test(line)) return false;
  return /^\s*(export )?(default )?(async )?function\b/.test(line) || /\)(: .*)? \{$/.test(line);
}

const indentOf = (line = ''): number => line.length - line.trimStart().length;

/** The line on which the parameters of a function begin. */
function headOf(lines: readonly string[], at: number): number {
  if (!/^\s*\)/.test(lines[at] ?? '')) return at;
  const indent = indentOf(lines[at]);
  return lines.findLastIndex(
    (line, index) => index < at && line !== '' && indentOf(line) === indent,
  );
}

/** The line that returns to the indent of the function. */
function endOf(lines: readonly string[], at: number): number {
  const indent = indentOf(lines[at]);
  const isOutside = (line: string) => line !== '' && indentOf(line) <= indent;
  const after = lines.findIndex((line, index) => index > at && isOutside(line));
  if (after < 0) return lines.length - 1;
  return /^\s*[)}\]]/.test(lines[after] ?? '') ? after : after - 1;
}

/**
 * @returns each line of more than 100 columns, as `file:line: how wide it is`, unless it consists
 * of one string or address that cannot be broken
 */
export function findWideLines(file: string, text: string): string[] {
  return text.split('\n').flatMap((line, index) => {
    const width = [...line].length;
    if (width <= LIMITS.columns) return [];
    const unbroken = line.match(/'[^']*'|"[^"]*"|`[^`]*`|\/.+\/[a-z]*|https?:\S+/g) ?? [];
    const longest = Math.max(0, ...unbroken.map((part) => part.length));
    if (longest > LIMITS.columns / 2) return [];
    return [`${file}:${index + 1}: ${width} columns`];
  });
}

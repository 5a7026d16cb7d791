/**
 * Finds what can be dropped from the conditions of SQL statements: a conjunct, an alternative, or a
 * whole condition. A test must notice each of them.
 */
import { tokenize, type Token } from '../tokens.ts';

export interface SqlMutant {
  /** Offsets in the text of the file. */
  readonly from: number;
  readonly to: number;
  /** From 1. */
  readonly line: number;
  readonly replacement: string;
  /** The name of the declaration around the statement. */
  readonly within: string;
  /** What is dropped, on one line. */
  readonly dropped: string;
}

/** A word or mark of a statement, or one `${…}`. */
interface Part {
  readonly text: string;
  readonly from: number;
  readonly to: number;
  readonly line: number;
}

/** Part of a condition: what stands between two words of `and` or of `or`. */
interface Operand {
  /** The word before it: `and`, `or`, the word that begins the condition, or none. */
  readonly before: Part | undefined;
  readonly parts: readonly Part[];
  /** The word after it. */
  readonly after: Part | undefined;
}

/** A condition alone after one of these can be replaced by `true`. */
const BEGINS_CONDITION = /^(where|when|having)$/i;
const ENDS_CONDITION =
  /^(where|when|having|then|else|on|set|select|from|group|order|limit|offset|returning|union|for|do|values|cross|left|right|inner|join|into|as|window|with|;|,)$/i;
const OPENS = /^(\(|\[|case)$/i;
const CLOSES = /^(\)|\]|end)$/i;
const DECLARATION = /^(?:export )?(?:async )?(?:const|function|let) (\w+)/gm;

/** Of TypeScript or of what is compiled from it: the same mutants in the same order. */
export function findSqlMutants(text: string): SqlMutant[] {
  const declarations = [...text.matchAll(DECLARATION)];
  const nameAt = (at: number) =>
    declarations.findLast(({ index }) => index <= at)?.[1] ?? 'the module';
  const found = findStatements(tokenize(text)).flatMap((parts) => mutantsOf(parts));
  return found
    .map((drop) => ({
      ...drop,
      within: nameAt(drop.from),
      dropped: text.slice(drop.from, drop.to).replace(/\s+/g, ' ').trim(),
    }))
    .sort((one, other) => one.from - other.from || one.to - other.to);
}

/** The statements in a file. One inside `${…}` is a statement of its own. */
function findStatements(tokens: readonly Token[]): Part[][] {
  const statements: Part[][] = [];
  let at = 0;

  const readStatement = () => {
    const parts: Part[] = [];
    for (let token = tokens[at]; token; token = tokens[at]) {
      if (token.kind === 'sql') parts.push({ ...token, from: token.at, to: endOf(token) });
      else if (token.text === '${' && token.kind === 'hole') parts.push(readHole(token));
      else break;
      at += 1;
    }
    statements.push(parts);
  };
  /** Leaves `at` at the last token of it. */
  const readHole = (opening: Token): Part => {
    at += 1;
    readUntilHoleEnds();
    const closing = tokens[at] ?? opening;
    return { text: '${}', from: opening.at, to: endOf(closing), line: opening.line };
  };
  const readUntilHoleEnds = () => {
    for (let token = tokens[at]; token; token = tokens[at]) {
      if (token.kind === 'hole' && token.text === '}') return;
      if (token.kind === 'sql') readStatement();
      else if (token.kind === 'hole') readTemplateHole();
      else at += 1;
    }
  };
  /** The hole of a template that is no SQL, or that begins a statement. */
  const readTemplateHole = () => {
    const previous = tokens[at - 1];
    if (previous?.kind === 'word' || previous?.text === '>') {
      readStatement();
      return;
    }
    at += 1;
    readUntilHoleEnds();
    at += 1;
  };

  while (at < tokens.length) {
    const token = tokens[at];
    if (token?.kind === 'sql') readStatement();
    else if (token?.kind === 'hole' && token.text === '${') readTemplateHole();
    else at += 1;
  }
  return statements;
}

const endOf = ({ at, text }: Token) => at + text.length;

type Drop = Pick<SqlMutant, 'from' | 'to' | 'line' | 'replacement'>;

function mutantsOf(parts: readonly Part[]): Drop[] {
  const drops: Drop[] = [];
  let at = 0;

  /** Reads to the bracket that closes this level, or to the end. */
  const readLevel = () => {
    let operands: Operand[] = [];
    let before: Part | undefined;
    let current: Part[] = [];
    let inBetween = false;
    const finish = (after: Part | undefined) => {
      operands.push({ before, parts: current, after });
      before = after;
      current = [];
      inBetween = false;
    };
    const finishCondition = (after: Part | undefined) => {
      finish(after);
      drops.push(...dropsOf(operands));
      operands = [];
    };
    for (let part = parts[at]; part; part = parts[at]) {
      if (CLOSES.test(part.text)) break;
      const isSplit = /^(and|or)$/i.test(part.text) && !inBetween;
      if (isSplit) finish(part);
      else if (endsCondition(part, current.at(-1))) finishCondition(part);
      else current.push(part);
      if (/^(between|and)$/i.test(part.text)) inBetween = /^between$/i.test(part.text);
      at += 1;
      if (!OPENS.test(part.text)) continue;
      readLevel();
      const closing = parts[at];
      if (closing) current.push(closing);
      at += 1;
    }
    finishCondition(undefined);
  };

  while (at < parts.length) {
    readLevel();
    // A fragment may close what its caller has opened.
    at += 1;
  }
  return drops;
}

/** The `from` of `is distinct from` ends nothing. */
const endsCondition = ({ text }: Part, previous: Part | undefined): boolean =>
  ENDS_CONDITION.test(text) && !/^distinct$/i.test(previous?.text ?? '');

/** @param operands of one condition */
function dropsOf(operands: readonly Operand[]): Drop[] {
  const [first, ...others] = operands;
  if (!first) return [];
  if (others.length === 0) {
    const begins = first.before !== undefined && BEGINS_CONDITION.test(first.before.text);
    return begins ? dropAll(first.parts, ' true ') : [];
  }
  const isJoinedByOr = ({ before }: Operand) => /^or$/i.test(before?.text ?? '');
  const alternatives: Operand[][] = [];
  operands.forEach((operand, index) => {
    if (index === 0 || isJoinedByOr(operand)) alternatives.push([operand]);
    else alternatives.at(-1)?.push(operand);
  });
  const conjuncts = alternatives.flatMap((each) =>
    each.length > 1 ? each.flatMap(dropConjunct) : [],
  );
  if (alternatives.length === 1) return conjuncts;
  return [...conjuncts, ...alternatives.flatMap(dropAlternative)];
}

const dropConjunct = (operand: Operand, index: number): Drop[] =>
  index > 0
    ? dropWith(operand.before, operand.parts, undefined)
    : dropWith(undefined, operand.parts, operand.after);

function dropAlternative(operands: readonly Operand[], index: number): Drop[] {
  const before = operands[0]?.before;
  const after = operands.at(-1)?.after;
  const parts = operands.flatMap((operand, at) =>
    at > 0 && operand.before ? [operand.before, ...operand.parts] : operand.parts,
  );
  return index > 0 ? dropWith(before, parts, undefined) : dropWith(undefined, parts, after);
}

/** With the word that joins it to the others. */
function dropWith(
  before: Part | undefined,
  parts: readonly Part[],
  after: Part | undefined,
): Drop[] {
  if (parts.length === 0) return [];
  return dropAll([...(before ? [before] : []), ...parts, ...(after ? [after] : [])], ' ');
}

function dropAll(parts: readonly Part[], replacement: string): Drop[] {
  const first = parts[0];
  const last = parts.at(-1);
  if (!first || !last) return [];
  return [{ from: first.from, to: last.to, line: first.line, replacement }];
}

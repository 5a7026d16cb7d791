/** Terminal sessions as text, with all that each command prints. CONTRIBUTING.md has the form. */

/** A command, what it must print, and how it must end. */
export interface Step {
  /** Of the command in its file, from 1. */
  readonly line: number;
  readonly command: string;
  readonly input: string;
  readonly stdout: string;
  readonly stderr: string;
  readonly code: number;
}

/** The commands below a heading, which are one test. */
export interface Section {
  readonly title: string;
  readonly steps: readonly Step[];
}

export interface Transcript {
  /** The lines before the first heading, in words. */
  readonly header: ReadonlyArray<readonly string[]>;
  readonly sections: readonly Section[];
}

export interface Result {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** The values of names such as `{ada}`, by name. */
export type Values = Map<string, string>;

const TIME = '\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z';
/** What `{id}` and the others stand for. */
const KINDS: ReadonlyMap<string, string> = new Map([
  ['id', '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'],
  ['time', TIME],
  ['token', '[A-Za-z0-9_-]{43}'],
  ['prefix', '[A-Za-z0-9_-]{8}'],
  ['rest', '[A-Za-z0-9_-]{41}'],
  ['long_key', '[A-Za-z0-9_-]{49}'],
  ['page_key', '[A-Za-z0-9_-]{48}'],
  // The services write it seconds later.
  ['last_use', `(?:–|null|"?${TIME}"?)`],
  ['last_check', `(?:null|"signing secret"|"${TIME}")`],
  ['fingerprint', '[0-9a-f]{16}'],
  ['number', '\\d+'],
  ['text', '\\S.*'],
]);
const STREAMS = { '<': 'input', '2>': 'stderr' } as const;
const DIRECTIVES = ['database', 'serve', 'environment'];
const NO_NEWLINE = '\\ no newline at the end';
/** `{id}`, `{ada=id}`, `{ada}` or `{n*256}`. JSON never has this form; `\{id}` is the text itself. */
const PLACEHOLDER = /((?<!\\)\{[a-z][a-z_]*(?:=[a-z_]+|\*\d+)?\})/;

interface Block {
  readonly line: number;
  readonly command: string;
  readonly body: string[];
}

/**
 * @param known names that have a value before the first command
 * @throws if a line means nothing, a heading has no command, or a capture is not used
 */
export function parseTranscript(text: string, known: readonly string[] = []): Transcript {
  const header: string[][] = [];
  const sections: Array<{ title: string; blocks: Block[] }> = [];
  let open: Block | undefined;
  for (const [index, line] of text.split('\n').entries()) {
    const section = sections.at(-1);
    const previous = section?.blocks.at(-1);
    if (line.startsWith('#')) {
      open = undefined;
      if (line.startsWith('## ')) sections.push({ title: line.slice(3), blocks: [] });
    } else if (line.startsWith('$ ') && section) {
      open = { line: index + 1, command: line.slice(2), body: [] };
      section.blocks.push(open);
    } else if (line.startsWith('$= ') && previous) {
      section?.blocks.push({ ...previous, line: index + 1, command: line.slice(3) });
      open = undefined;
    } else if (open) {
      open.body.push(line);
    } else if (!section && DIRECTIVES.includes(line.split(' ')[0] ?? '')) {
      header.push(splitWords(line));
    } else if (line !== '') {
      throw new Error(`line ${index + 1}: "${line}" is no directive, heading or command`);
    }
  }
  if (sections.length === 0) throw new Error('the file has no command');
  const empty = sections.find(({ blocks }) => blocks.length === 0);
  if (empty) throw new Error(`"${empty.title}" has no command`);
  const parsed = sections.map(({ title, blocks }) => ({ title, steps: blocks.map(stepOf) }));
  checkNames(
    parsed.flatMap(({ steps }) => steps),
    known,
  );
  return { header, sections: parsed };
}

function stepOf({ line, command, body }: Block): Step {
  const written = { input: '', stdout: '', stderr: '' };
  let last: keyof typeof written = 'stdout';
  let code = 0;
  for (const text of linesOf(body.join('\n').replace(/\n*$/, '\n').replace(/^\n$/, ''))) {
    if (code !== 0) throw new Error(`line ${line}: there is a line after "exit ${code}"`);
    if (text === 'exit 0') throw new Error(`line ${line}: "exit 0" is meant without a line`);
    const [, exit] = /^exit ([1-9]\d*)$/.exec(text) ?? [];
    const [, mark, marked = ''] = /^(<\$?|2>)(?: (.*))?$/.exec(text) ?? [];
    if (exit !== undefined) {
      code = Number(exit);
    } else if (mark === '<$') {
      written.input += unescape(marked);
    } else if (text === NO_NEWLINE) {
      written[last] = written[last].slice(0, -1);
    } else if (mark === '<' || mark === '2>') {
      last = STREAMS[mark];
      written[last] += `${marked}\n`;
    } else {
      last = 'stdout';
      written.stdout += `${text}\n`;
    }
  }
  return { line, command, code, ...written };
}

/** @throws if a name has no value when it is needed, has two, or is never needed */
function checkNames(steps: readonly Step[], known: readonly string[]): void {
  const values = new Set(known);
  const unused = new Map<string, number>();
  for (const { line, command, input, stdout, stderr } of steps) {
    const check = (text: string, isOutput: boolean) => {
      for (const { name, kind, times } of placeholdersIn(text)) {
        if (times !== undefined) continue;
        const isTaken = values.has(name) || KINDS.has(name);
        const isRight =
          kind === undefined
            ? values.has(name) || (isOutput && KINDS.has(name))
            : isOutput && KINDS.has(kind) && !isTaken;
        if (!isRight) throw new Error(`line ${line}: {${name}} cannot stand here`);
        unused.delete(name);
        if (kind === undefined) continue;
        values.add(name);
        unused.set(name, line);
      }
    };
    check(command + input, false);
    check(stdout + stderr, true);
  }
  for (const [name, line] of unused) throw new Error(`line ${line}: {${name}} is never used`);
}

interface Placeholder {
  readonly name: string;
  readonly kind: string | undefined;
  readonly times: string | undefined;
}

const placeholdersIn = (text: string): Placeholder[] =>
  text.split(PLACEHOLDER).flatMap((part, index) => (index % 2 === 0 ? [] : [placeholderOf(part)]));

function placeholderOf(text: string): Placeholder {
  const [, name = '', kind, times] = /^\{([a-z_]+)(?:=([a-z_]+)|\*(\d+))?\}$/.exec(text) ?? [];
  return { name, kind, times };
}

/** @returns the text with the values of its placeholders */
export function fill(text: string, values: Values): string {
  const parts = text.split(PLACEHOLDER).map((part, index) => {
    if (index % 2 === 0) return part.replaceAll('\\{', '{');
    const { name, times } = placeholderOf(part);
    return times === undefined ? (values.get(name) ?? '') : name.repeat(Number(times));
  });
  return parts.join('');
}

const unescape = (text: string) => String(JSON.parse(`"${text}"`));

/** @returns the words of a command as a shell reads them, with '…', "…" and $'…\n' */
export function splitWords(command: string): string[] {
  const words: string[] = [];
  const piece = /(\s*)(?:\$'((?:[^'\\]|\\.)*)'|'([^']*)'|"([^"]*)"|([^\s'"]+))/gy;
  let end = 0;
  for (const [whole, space = '', escaped, single, double, bare] of command.matchAll(piece)) {
    end += whole.length;
    const unescaped = escaped === undefined ? undefined : unescape(escaped);
    const text = unescaped ?? single ?? double ?? bare ?? '';
    if (space !== '' || words.length === 0) words.push(text);
    else words.push(`${words.pop() ?? ''}${text}`);
  }
  if (end !== command.trimEnd().length) throw new Error(`a quote does not end: ${command}`);
  return words;
}

/**
 * Two or more spaces stand for any number above one: the width of a column depends on values.
 * @param values gets the captures of the step
 * @returns the differences, or nothing
 */
export function compare(step: Step, result: Result, values: Values): string {
  const differences = [
    difference(step.stdout, result.stdout, '', values),
    difference(step.stderr, result.stderr, '2> ', values),
  ];
  if (step.code !== result.code) differences.push(`-exit ${step.code}\n+exit ${result.code}\n`);
  return differences.join('');
}

function difference(expected: string, actual: string, mark: string, values: Values): string {
  const wanted = linesOf(expected);
  const seen = linesOf(actual);
  const fits = (line: string | undefined, text: string | undefined) => {
    if (line === undefined || text === undefined) return false;
    const match = patternOf(line, values).exec(text);
    for (const [name, value] of Object.entries(match?.groups ?? {})) values.set(name, value);
    return match !== null;
  };
  let start = 0;
  while (start < wanted.length && fits(wanted[start], seen[start])) start += 1;
  if (start === wanted.length && start === seen.length) return '';
  let tail = 0;
  const rest = Math.min(wanted.length, seen.length) - start;
  while (tail < rest && fits(wanted.at(-1 - tail), seen.at(-1 - tail))) tail += 1;
  const show = (sign: string, lines: readonly string[]) =>
    lines.slice(start, lines.length - tail).map((line) => `${sign}${mark}${line}\n`);
  return [...show('-', wanted), ...show('+', seen)].join('');
}

function patternOf(line: string, values: Values): RegExp {
  const parts = line.split(PLACEHOLDER).map((part, index) => {
    if (index % 2 === 0) return literal(part);
    const { name, kind } = placeholderOf(part);
    if (kind !== undefined) return `(?<${name}>${KINDS.get(kind) ?? ''})`;
    return values.has(name)
      ? literal(values.get(name) ?? '')
      : (KINDS.get(name) ?? literal(fill(part, values)));
  });
  return new RegExp(`^${parts.join('')}$`, 'u');
}

const literal = (text: string) =>
  text
    .replaceAll('\\{', '{')
    .replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')
    .replace(/ {2,}/g, ' {2,}');

function linesOf(text: string): string[] {
  if (text === '') return [];
  return text.endsWith('\n') ? text.slice(0, -1).split('\n') : [...text.split('\n'), NO_NEWLINE];
}

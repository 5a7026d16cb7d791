/** Terminal sessions as text, with all that each command prints. CONTRIBUTING.md has the form. */

/** A command, what it must print, and how it must end. */
export interface Step extends Result {
  /** Of the command in its file, from 1. */
  readonly line: number;
  readonly command: string;
  readonly input: string;
}

export interface Result {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Transcript {
  /** The lines before the first heading, in words. */
  readonly header: ReadonlyArray<readonly string[]>;
  /** The commands below each heading, which are one test. */
  readonly sections: ReadonlyArray<{ readonly title: string; readonly steps: readonly Step[] }>;
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
const STREAMS: ReadonlyMap<string | undefined, 'input' | 'stderr'> = new Map([
  ['<', 'input'],
  ['2>', 'stderr'],
]);
const DIRECTIVES = ['database', 'serve', 'environment'];
const NO_NEWLINE = '\\ no newline at the end';
/**
 * `{id}`, `{ada=id}`, `{ada}` or `{n*256}`. JSON never has this form; `\{id}` is the text itself.
 */
const PLACEHOLDER = /((?<!\\)\{[a-z][a-z_]*(?:=[a-z_]+|\*\d+)?\})/;

interface Block {
  readonly line: number;
  readonly command: string;
  readonly body: string[];
}

/** @throws if a line means nothing, or a heading has no command */
export function parseTranscript(text: string): Transcript {
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
  if (sections.length === 0 || sections.some(({ blocks }) => blocks.length === 0))
    throw new Error('a heading has no command');
  return {
    header,
    sections: sections.map(({ title, blocks }) => ({ title, steps: blocks.map(stepOf) })),
  };
}

function stepOf({ line, command, body }: Block): Step {
  const written = { input: '', stdout: '', stderr: '' };
  let last: keyof typeof written = 'stdout';
  let code = 0;
  const content = body.join('\n').replace(/\n+$/, '');
  for (const text of content === '' ? [] : content.split('\n')) {
    const [, exit] = /^exit ([1-9]\d*)$/.exec(text) ?? [];
    const [, mark, marked = ''] = /^(<\$?|2>)(?: (.*))?$/.exec(text) ?? [];
    if (exit !== undefined) {
      code = Number(exit);
    } else if (mark === '<$') {
      written.input += unescape(marked);
    } else if (text === NO_NEWLINE) {
      written[last] = written[last].slice(0, -1);
    } else {
      last = STREAMS.get(mark) ?? 'stdout';
      written[last] += `${mark === undefined ? text : marked}\n`;
    }
  }
  return { line, command, code, ...written };
}

interface Placeholder {
  readonly name: string;
  readonly kind: string | undefined;
  readonly times: string | undefined;
}

function placeholderOf(text: string): Placeholder {
  const [, name = '', kind, times] = /^\{([a-z_]+)(?:=([a-z_]+)|\*(\d+))?\}$/.exec(text) ?? [];
  return { name, kind, times };
}

/** @returns the text with the values of its placeholders. @throws if one has no value */
export function fill(text: string, values: Values): string {
  const parts = text.split(PLACEHOLDER).map((part, index) => {
    if (index % 2 === 0) return part.replaceAll('\\{', '{');
    const { name, times } = placeholderOf(part);
    const value = times === undefined ? values.get(name) : name.repeat(Number(times));
    if (value === undefined) throw new Error(`${part} has no value`);
    return value;
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
 * @param printed by a command
 * @param values gets the captures
 * @returns what it had to print: with its own lines where these have the form that is written
 */
export function expectedOf(written: string, printed: string, values: Values): string {
  const lines = printed.split('\n');
  const expected = written.split('\n').map((line, index) => {
    const { [index]: text = '' } = lines;
    const match = patternOf(line, values).exec(text);
    for (const [name, value] of Object.entries(match?.groups ?? {})) values.set(name, value);
    return match ? text : line;
  });
  return expected.join('\n');
}

/** Two or more spaces stand for any number above one: the width of a column depends on values. */
function patternOf(line: string, values: Values): RegExp {
  const parts = line.split(PLACEHOLDER).map((part, index) => {
    if (index % 2 === 0) return literal(part);
    const { name, kind } = placeholderOf(part);
    if (kind !== undefined) return `(?<${name}>${KINDS.get(kind) ?? ''})`;
    const any = values.has(name) ? undefined : KINDS.get(name);
    return any ?? literal(fill(part, values));
  });
  return new RegExp(`^${parts.join('')}$`, 'u');
}

const literal = (text: string) =>
  text
    .replaceAll('\\{', '{')
    .replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')
    .replace(/ {2,}/g, ' {2,}');

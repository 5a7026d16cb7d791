/** Terminal sessions as text, with all that each command prints. CONTRIBUTING.md has the form. */

export interface Result {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A command, what it must print, and how it must end. */
export interface Step extends Result {
  readonly command: string;
  readonly input: string;
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
/**
 * `{id}`, `{ada=id}`, `{ada}` or `{n*256}`. JSON never has this form; `\{id}` is the text itself.
 */
const PLACEHOLDER = /\\\{|\{([a-z][a-z_]*)(?:=([a-z_]+)|\*(\d+))?\}/g;
/** And what else is not itself in a pattern. */
const SPECIAL = new RegExp(`${PLACEHOLDER.source}|[\\\\^$.*+?()[\\]{}|/]| {2,}`, 'g');
const NO_NEWLINE = '\\ no newline at the end';

/** @throws if a line means nothing, or a heading has no command */
export function parseTranscript(text: string): Transcript {
  const [head = '', ...sections] = text.replaceAll(/^# .*\n/gm, '').split(/^## /m);
  const header = head.split('\n').filter(Boolean).map(splitWords);
  if (!header.every(([first = '']) => ['database', 'serve', 'environment'].includes(first)))
    throw new Error(`no directive: ${head}`);
  return { header, sections: sections.map(sectionOf) };
}

function sectionOf(section: string) {
  const [title = '', ...blocks] = section.split(/\n+(?=\$=? )/);
  const steps: Step[] = [];
  for (const block of blocks) {
    const [, same, command = '', body = ''] = /^\$(=?) (.*)([^]*)$/.exec(block) ?? [];
    const previous = same === '' ? stepOf(body.replace(/^\n|\n+$/g, '')) : steps.at(-1);
    if (!previous || (same !== '' && body.trim() !== ''))
      throw new Error(`no text follows "$=", and a command comes before it: ${block}`);
    steps.push({ ...previous, command });
  }
  if (steps.length === 0 || title.includes('\n')) throw new Error(`${title} has no command`);
  return { title, steps };
}

function stepOf(body: string): Omit<Step, 'command'> {
  const written = { input: '', stdout: '', stderr: '' };
  let last: keyof typeof written = 'stdout';
  let code = 0;
  for (const text of body === '' ? [] : body.split('\n')) {
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
  return { code, ...written };
}

/** @returns the text with the values of its placeholders. @throws if one has no value */
export const fill = (text: string, values: Values): string =>
  text.replaceAll(PLACEHOLDER, (whole, name?: string, _kind?: string, times?: string) =>
    name === undefined ? '{' : valueOf(whole, name, times, values),
  );

function valueOf(whole: string, name: string, times: string | undefined, values: Values): string {
  const value = times === undefined ? values.get(name) : name.repeat(Number(times));
  if (value === undefined) throw new Error(`${whole} has no value`);
  return value;
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
  const pattern = line.replaceAll(
    SPECIAL,
    (whole, name?: string, kind?: string, times?: string) => {
      if (kind !== undefined) return `(?<${name}>${KINDS.get(kind) ?? ''})`;
      if (name !== undefined) {
        const any = values.has(name) ? undefined : KINDS.get(name);
        return any ?? escape(valueOf(whole, name, times, values));
      }
      if (whole.startsWith(' ')) return ' {2,}';
      return whole === '\\{' ? whole : escape(whole);
    },
  );
  return new RegExp(`^${pattern}$`, 'u');
}

const escape = (text: string) => text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');

/**
 * Reads the part of YAML that the files in deploy/ use: blocks, flow lists, quoted and plain
 * scalars, literal texts, anchors and merge keys. Everything else is an error, and so is what
 * versions of YAML understand differently, such as a bare `on` or `0440`. `make e2e NAME=deploy`
 * compares it with a complete reader.
 */
export type Yaml = string | number | boolean | null | readonly Yaml[] | YamlMap;
export interface YamlMap {
  readonly [key: string]: Yaml;
}

interface Line {
  readonly indent: number;
  readonly text: string;
}

const ENTRY = /^(?:"([^"]*)"|([\w./<-]+)):(?: +(.*))?$/;

/** @returns the documents of a file */
export function readYaml(text: string): readonly Yaml[] {
  return text.split(/^---\n/m).map((document) => readDocument(document.split('\n')));
}

/** A document that is being read: `at` is the index of the next line. */
interface Reading {
  readonly lines: string[];
  readonly anchors: Map<string, Yaml>;
  at: number;
}

function readDocument(lines: readonly string[]): Yaml {
  const reading: Reading = { lines: [...lines], anchors: new Map(), at: 0 };
  const document = readBlock(reading, 0);
  return peek(reading) === null ? document : fail(reading, 'unexpected');
}

function fail({ lines, at }: Reading, problem: string): never {
  throw new Error(`YAML, line ${at + 1} of the document: ${problem}: ${lines[at] ?? 'the end'}`);
}

/** @returns the next line that is neither empty nor a comment, or null at the end */
function peek(reading: Reading): Line | null {
  const { lines } = reading;
  while (reading.at < lines.length && /^\s*(#.*)?$/.test(lines[reading.at] ?? '')) reading.at += 1;
  const line = lines[reading.at];
  if (line === undefined) return null;
  const indent = line.search(/\S/);
  return { indent, text: withoutComment(line.slice(indent)) };
}

function readBlock(reading: Reading, indent: number): Yaml {
  return isItem(peek(reading)) ? readSequence(reading, indent) : readMapping(reading, indent);
}

function readSequence(reading: Reading, indent: number): Yaml[] {
  const items: Yaml[] = [];
  for (let line = peek(reading); line?.indent === indent && isItem(line); line = peek(reading)) {
    const text = line.text.slice(2);
    // The item is read as if it began in a line of its own.
    reading.lines[reading.at] = ' '.repeat(indent + 2) + text;
    if (ENTRY.test(text)) items.push(readMapping(reading, indent + 2));
    else {
      items.push(readScalar(reading, text));
      reading.at += 1;
    }
  }
  return items;
}

function readMapping(reading: Reading, indent: number): YamlMap {
  const map: Record<string, Yaml> = {};
  for (let line = peek(reading); line && line.indent >= indent; line = peek(reading)) {
    const found = ENTRY.exec(line.text);
    if (line.indent !== indent || !found) return fail(reading, 'not an entry of this mapping');
    const [, quoted, plain = '', text = ''] = found;
    const key = quoted ?? plain;
    if (Object.hasOwn(map, key)) return fail(reading, 'the key is given twice');
    const value = readValue(reading, text, indent);
    if (key !== '<<') map[key] = value;
    else if (isMap(value)) Object.assign(map, { ...value, ...map });
    else return fail(reading, 'not a mapping to merge');
  }
  return map;
}

/** @param text what follows the key, with or without an anchor */
function readValue(reading: Reading, text: string, indent: number): Yaml {
  const [, anchor, rest = ''] = /^(?:&(\w+) *)?(.*)$/.exec(text) ?? [];
  const value = readUnnamed(reading, rest, indent);
  if (anchor !== undefined) reading.anchors.set(anchor, value);
  return value;
}

function readUnnamed(reading: Reading, text: string, indent: number): Yaml {
  if (text === '|') return readLiteral(reading, indent);
  if (text !== '') {
    const scalar = readScalar(reading, text);
    reading.at += 1;
    return scalar;
  }
  reading.at += 1;
  const next = peek(reading);
  return next && next.indent > indent ? readBlock(reading, next.indent) : null;
}

function readLiteral(reading: Reading, indent: number): string {
  const { lines } = reading;
  const first = (lines[reading.at + 1] ?? '').search(/\S/);
  if (first <= indent) return fail(reading, 'an empty text');
  let text = '';
  reading.at += 1;
  while ((lines[reading.at] ?? '').startsWith(' '.repeat(first))) {
    text += `${lines[reading.at]?.slice(first)}\n`;
    reading.at += 1;
  }
  return text;
}

function readScalar(reading: Reading, text: string): Yaml {
  const [, quoted] = /^"([^"\\]*)"$/.exec(text) ?? /^'([^']*)'$/.exec(text) ?? [];
  if (quoted !== undefined) return quoted;
  if (/^\[.*\]$/.test(text)) return partsOf(text).map((part) => readScalar(reading, part));
  if (text === '{}') return {};
  if (/^\{.*\}$/.test(text)) {
    return Object.fromEntries(partsOf(text).map((part) => readPair(reading, part)));
  }
  if (text.startsWith('*')) {
    return reading.anchors.get(text.slice(1)) ?? fail(reading, 'an unknown anchor');
  }
  if (/^-?(0|[1-9]\d*)$/.test(text)) return Number(text);
  if (text === 'true' || text === 'false') return text === 'true';
  const isAmbiguous =
    /^(yes|no|on|off|null|~|[\d:]+|0[xo][\da-f]+|[-+]?\d*\.?\d+(e\d+)?|\d+\.)$/i.test(text);
  const isReserved = /^[&*!|>@`%"'[{,#?-]/.test(text) || /: |:$| #/.test(text);
  if (isAmbiguous || isReserved) return fail(reading, 'needs quotes');
  return text;
}

function readPair(reading: Reading, text: string): [string, Yaml] {
  const [, quoted, plain = '', value] = ENTRY.exec(text) ?? [];
  if (value === undefined) return fail(reading, 'not a pair');
  return [quoted ?? plain, readScalar(reading, value)];
}

/** What stands between the brackets, split at its commas. Lists in lists are not needed. */
const partsOf = (text: string) =>
  [...text.slice(1, -1).matchAll(/(?:"[^"]*"|'[^']*'|[^,"'])+/g)].map(([part]) => part.trim());

const isItem = (line: Line | null) => line?.text.startsWith('- ') === true;

/** A comment begins with a # after a space, outside of quotes. */
const withoutComment = (text: string) =>
  /^((?:"[^"]*"|'[^']*'|(?! #)[^"']|["'])*)/.exec(text)?.[1]?.trimEnd() ?? '';

export const isMap = (value: unknown): value is YamlMap =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** What stands at a path such as `spec.template.spec.containers.0`. @throws if nothing does */
export function at(value: Yaml, path: string): Yaml {
  const found = path
    .split('.')
    .reduce<unknown>((part, key) => Reflect.get(Object(part), key), value);
  if (found === undefined) throw new Error(`nothing at ${path}`);
  // Part of a Yaml value.
  return found as Yaml;
}

export function mapAt(value: Yaml, path: string): YamlMap {
  const found = at(value, path);
  if (!isMap(found)) throw new Error(`no mapping at ${path}`);
  return found;
}

export function listAt(value: Yaml, path: string): readonly Yaml[] {
  const found = at(value, path);
  if (!Array.isArray(found)) throw new Error(`no list at ${path}`);
  return found;
}

export const textAt = (value: Yaml, path: string): string => String(at(value, path));

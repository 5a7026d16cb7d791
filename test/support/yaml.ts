/**
 * Reads the part of YAML that the files in deploy/ use: blocks, flow lists, quoted and plain scalars, literal texts,
 * anchors and merge keys. Everything else is an error, and so is what versions of YAML understand differently, such as
 * a bare `on` or `0440`. `make test-deploy` compares it with a complete reader.
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

function readDocument(given: readonly string[]): Yaml {
  const lines = [...given];
  const anchors = new Map<string, Yaml>();
  let at = 0;
  const fail = (problem: string): never => {
    throw new Error(`YAML, line ${at + 1} of the document: ${problem}: ${lines[at] ?? 'the end'}`);
  };

  function peek(): Line | null {
    while (at < lines.length && /^\s*(#.*)?$/.test(lines[at] ?? '')) at += 1;
    const line = lines[at];
    if (line === undefined) return null;
    const indent = line.search(/\S/);
    return { indent, text: withoutComment(line.slice(indent)) };
  }

  function block(indent: number): Yaml {
    return isItem(peek()) ? sequence(indent) : mapping(indent);
  }

  function sequence(indent: number): Yaml[] {
    const items: Yaml[] = [];
    for (let line = peek(); line?.indent === indent && isItem(line); line = peek()) {
      const text = line.text.slice(2);
      // The item is read as if it began in a line of its own.
      lines[at] = ' '.repeat(indent + 2) + text;
      if (ENTRY.test(text)) items.push(mapping(indent + 2));
      else {
        items.push(scalar(text));
        at += 1;
      }
    }
    return items;
  }

  function mapping(indent: number): YamlMap {
    const map: Record<string, Yaml> = {};
    for (let line = peek(); line && line.indent >= indent; line = peek()) {
      const found = ENTRY.exec(line.text);
      if (line.indent !== indent || !found) return fail('not an entry of this mapping');
      const [, quoted, plain = '', text = ''] = found;
      const key = quoted ?? plain;
      if (Object.hasOwn(map, key)) return fail('the key is given twice');
      const value = valueOf(text, indent);
      if (key !== '<<') map[key] = value;
      else if (isMap(value)) Object.assign(map, { ...value, ...map });
      else return fail('not a mapping to merge');
    }
    return map;
  }

  function valueOf(text: string, indent: number): Yaml {
    const [, anchor, rest = ''] = /^(?:&(\w+) *)?(.*)$/.exec(text) ?? [];
    let value: Yaml = null;
    if (rest === '|') value = literal(indent);
    else if (rest !== '') {
      value = scalar(rest);
      at += 1;
    } else {
      at += 1;
      const next = peek();
      if (next && next.indent > indent) value = block(next.indent);
    }
    if (anchor !== undefined) anchors.set(anchor, value);
    return value;
  }

  function literal(indent: number): string {
    const first = (lines[at + 1] ?? '').search(/\S/);
    if (first <= indent) return fail('an empty text');
    let text = '';
    for (at += 1; (lines[at] ?? '').startsWith(' '.repeat(first)); at += 1)
      text += `${lines[at]?.slice(first)}\n`;
    return text;
  }

  function scalar(text: string): Yaml {
    const [, quoted] = /^"([^"\\]*)"$/.exec(text) ?? /^'([^']*)'$/.exec(text) ?? [];
    if (quoted !== undefined) return quoted;
    if (/^\[.*\]$/.test(text)) return parts(text).map(scalar);
    if (text === '{}') return {};
    if (/^\{.*\}$/.test(text)) return Object.fromEntries(parts(text).map(pair));
    if (text.startsWith('*')) return anchors.get(text.slice(1)) ?? fail('an unknown anchor');
    if (/^-?(0|[1-9]\d*)$/.test(text)) return Number(text);
    if (text === 'true' || text === 'false') return text === 'true';
    const isAmbiguous =
      /^(yes|no|on|off|null|~|[\d:]+|0[xo][\da-f]+|[-+]?\d*\.?\d+(e\d+)?|\d+\.)$/i.test(text);
    if (isAmbiguous || /^[&*!|>@`%"'[{,#?-]/.test(text) || /: |:$| #/.test(text))
      return fail('needs quotes');
    return text;
  }

  function pair(text: string): [string, Yaml] {
    const [, quoted, plain = '', value] = ENTRY.exec(text) ?? [];
    return value === undefined ? fail('not a pair') : [quoted ?? plain, scalar(value)];
  }

  /** What stands between the brackets, split at its commas. Lists in lists are not needed. */
  const parts = (text: string) =>
    [...text.slice(1, -1).matchAll(/(?:"[^"]*"|'[^']*'|[^,"'])+/g)].map(([part]) => part.trim());

  const document = block(0);
  return peek() === null ? document : fail('unexpected');
}

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

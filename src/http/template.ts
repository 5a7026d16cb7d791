import { readFileSync } from 'node:fs';

/** Markup: of a template, with every value in it escaped. */
export class Html {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

type Value = string | number | Html | readonly Html[];
export type Values = Readonly<Record<string, Value>>;

/** The only way a text gets into a page. */
const escape = (text: string): string =>
  text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

/**
 * The templates of a file. Each begins with `<!-- template: name -->`. `{{value}}` stands for a value, in an element or
 * between double quotes.
 * @returns fills one of them; a missing value is a mistake of the program
 */
export function readTemplates(file: URL): (name: string, values?: Values) => Html {
  const [, ...parts] = readFileSync(file, 'utf8').split(/^<!-- template: ([a-z-]+) -->\n/m);
  const templates = new Map<string, string>();
  for (let at = 0; at < parts.length; at += 2)
    templates.set(parts[at] ?? '', parts[at + 1]?.trim() ?? '');
  return (name, values = {}) => {
    const template = templates.get(name);
    if (template === undefined) throw new Error(`internal error: there is no template ${name}`);
    return new Html(
      template.replace(/\{\{([a-z_]+)\}\}/g, (_, key: string) => textOf(key, values[key])),
    );
  };
}

function textOf(key: string, value: Value | undefined): string {
  if (value === undefined) throw new Error(`internal error: the template has no value ${key}`);
  if (value instanceof Html) return value.text;
  return typeof value === 'object'
    ? value.map(({ text }) => text).join('\n')
    : escape(String(value));
}

export const NOTHING = new Html('');

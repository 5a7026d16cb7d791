import { readFileSync } from 'node:fs';

/**
 * ASVS 3.4: nothing inline and nothing from another origin, so that text on a page can neither run
 * nor be sent elsewhere; no referrer, no frame, and no window of another site that could read the
 * page.
 */
export const pageHeaders = (formAction: "'none'" | "'self'") => ({
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
    `base-uri 'none'; form-action ${formAction}; frame-ancestors 'none'; require-trusted-types-for 'script'`,
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
});
export const PAGE_HEADERS = pageHeaders("'none'");

export const HTML = 'text/html; charset=utf-8';
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
export const escapeHtml = (text: string) =>
  text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

/**
 * The templates of a file, which is read at the first use. Each begins with a comment such as
 * `<!-- template: name -->`. `{{value}}` stands for a value, in an element or in double quotes.
 * @param base the URL of the module that names the file
 * @returns fills one of them; a missing value is a mistake of the program
 */
export function readTemplates(base: string, file: string) {
  let templates: ReadonlyMap<string, string> | null = null;
  return (name: string, values: Values = {}) => {
    templates ??= splitTemplates(readFileSync(new URL(file, base), 'utf8'));
    const template = templates.get(name);
    if (template === undefined) throw new Error(`internal error: there is no template ${name}`);
    const fill = (_: string, key: string) => textOf(key, values[key]);
    return new Html(template.replace(/\{\{([\w.-]+)\}\}/g, fill));
  };
}

function splitTemplates(text: string) {
  const templates = new Map<string, string>();
  for (const part of text.split(/^<!-- template: /m).slice(1)) {
    const [name = '', template = ''] = part.split(/ -->\n(.*)/s);
    templates.set(name, template.trim());
  }
  return templates;
}

function textOf(key: string, value: Value | undefined) {
  if (value === undefined) throw new Error(`internal error: the template has no value ${key}`);
  if (value instanceof Html) return value.text;
  return typeof value === 'object'
    ? value.map(({ text }) => text).join('\n')
    : escapeHtml(String(value));
}

export const NOTHING = new Html('');

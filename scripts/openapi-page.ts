/** An OpenAPI document as a page that people read: no script, and nothing but what it says. */
import { escapeHtml } from '../src/platform/http/site/html.ts';
import type { JsonSchema } from '../src/platform/http/route/schema.ts';
import type { describe, Operation } from './openapi-document.ts';

type Content = Operation['responses'][string]['content'];

interface Row {
  readonly name: string;
  readonly schema: JsonSchema;
  readonly isRequired: boolean;
}

const code = (text: string) => `<code>${escapeHtml(text)}</code>`;

/** The members of a schema by their paths, such as `data.groups[]`. */
function membersOf(schema: JsonSchema, path = ''): readonly Row[] {
  const prefix = path === '' ? '' : `${path}.`;
  const members = Object.entries(schema.properties ?? {}).flatMap(([name, member]) => {
    const isRequired = schema.required?.includes(name) ?? false;
    const row = { name: prefix + name, schema: member, isRequired };
    return [row, ...membersOf(member, row.name)];
  });
  return schema.items ? [...members, ...membersOf(schema.items, `${path}[]`)] : members;
}

/** Such as `integer, 1 to 100`. */
function typeOf(schema: JsonSchema): string {
  const { type, format, nullable, items } = schema;
  const name = items ? `list of ${typeOf(items)}` : String(format ?? type ?? 'any value');
  return [name, ...limitsOf(schema), ...(nullable === true ? ['or null'] : [])].join(', ');
}

function* limitsOf(schema: JsonSchema) {
  const { minimum, maximum, minLength, maxLength, maxItems, default: fallback } = schema;
  const most = maximum === Number.MAX_SAFE_INTEGER ? undefined : maximum;
  if (minimum !== undefined)
    yield most === undefined ? `at least ${minimum}` : `${minimum} to ${most}`;
  if (maxLength !== undefined) yield `${minLength ?? 0} to ${maxLength} characters`;
  else if (minLength !== undefined) yield 'not empty';
  if (maxItems !== undefined) yield `at most ${maxItems}`;
  if (fallback !== undefined) yield `default ${JSON.stringify(fallback)}`;
}

/** What no type says. */
function meaningOf({ description, enum: values, pattern, items }: JsonSchema): string {
  const choices = values ?? items?.enum;
  return [
    ...(typeof description === 'string' ? [`${escapeHtml(description)}.`] : []),
    ...(choices ? [`One of ${choices.map((value) => code(String(value))).join(', ')}.`] : []),
    ...(typeof pattern === 'string' && !choices ? [`Matches ${code(pattern)}.`] : []),
  ].join(' ');
}

function table(title: string, rows: readonly Row[]): string {
  if (rows.length === 0) return '';
  const lines = rows.map(
    ({ name, schema, isRequired }) =>
      `<tr><td>${code(name)}</td><td data-label="Type">${escapeHtml(typeOf(schema))}</td>` +
      `<td>${isRequired ? '' : 'May be missing. '}${meaningOf(schema)}</td></tr>`,
  );
  return `<h3>${title}</h3>
<div><table class="dense stack">
<thead><tr><th>Name</th><th>Type</th><th>Meaning</th></tr></thead><tbody>
${lines.join('\n')}
</tbody></table></div>`;
}

function bodyTables(what: string, content: Content = {}): string {
  return Object.entries(content)
    .map(([type, { schema }]) => {
      const rows = membersOf(schema);
      const title = `${what}: ${escapeHtml(type)}`;
      return rows.length > 0
        ? table(title, rows)
        : `<h3>${title}</h3><p>${escapeHtml(typeOf(schema))}</p>`;
    })
    .join('\n');
}

function operationHtml(method: string, path: string, operation: Operation): string {
  const { parameters = [], requestBody, security, responses, summary, operationId } = operation;
  const names = security.flatMap((one) => Object.keys(one));
  const credential = names.length === 0 ? 'none' : names.map(code).join(' or ');
  const rowsIn = (place: string) =>
    parameters
      .filter((one) => one.in === place)
      .map(({ name, schema, required }) => ({ name, schema, isRequired: required }));
  const all = Object.entries(responses);
  const good = all.filter(([status]) => status.startsWith('2'));
  const others = all.filter(([status]) => !status.startsWith('2'));
  const listed = others.map(
    ([status, { description }]) => `<dt>${status}</dt><dd>${escapeHtml(description)}</dd>`,
  );
  return `<details id="${operationId}">
<summary>${code(`${method.toUpperCase()} ${path}`)} ${escapeHtml(summary)}</summary>
<p>Credential: ${credential}.</p>
${table('In the path', rowsIn('path'))}
${table('In the query', rowsIn('query'))}
${requestBody ? bodyTables('Request', requestBody.content) : ''}
${good.map(([status, { content }]) => bodyTables(`Reply ${status}`, content)).join('\n')}
${listed.length > 0 ? `<h3>Other replies</h3>\n<dl>${listed.join('\n')}</dl>` : ''}
</details>`.replace(/\n+/g, '\n');
}

/** Of no interest to who looks for one service. */
const EVERYWHERE = ['/', '/livez', '/readyz', '/openapi', '/openapi.json', '/pages/{file}'];

/** Paths for programs by their tag, then those of pages, then those of every service. */
function groupOf(path: string, { tags, summary }: Operation): string {
  if (EVERYWHERE.includes(path)) return 'Every service';
  return /^[\w-]+ pages(?=:)/.exec(summary)?.[0] ?? tags[0] ?? '';
}

/** @returns the head and the main part; the service puts the frame of the site around them */
export function page({ info, paths, components }: ReturnType<typeof describe>): string {
  const groups = new Map<string, string[]>();
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const name = groupOf(path, operation);
      const html = operationHtml(method, path, operation);
      groups.set(name, [...(groups.get(name) ?? []), html]);
    }
  }
  const names = [...groups.keys()];
  const isForPrograms = (name: string) => /^[a-z]/.test(name);
  const sorted = [
    ...names.filter(isForPrograms).sort(),
    ...names
      .filter((name) => !isForPrograms(name))
      .sort()
      .reverse(),
  ];
  const idOf = (name: string) => name.toLowerCase().replaceAll(' ', '-');
  const sections = sorted.map(
    (name) =>
      `<section class="card"><h2 id="${idOf(name)}">${name}</h2>
${groups.get(name)?.join('\n')}
</section>`,
  );
  const links = [...sorted, 'Errors'].map((name) => `<a href="#${idOf(name)}">${name}</a>`);
  return `<title>${escapeHtml(info.title)}: interface</title>
<main class="wide">
<h1>${escapeHtml(info.title)}: interface</h1>
<p class="lead">${escapeHtml(info.description)} Programs read this as
<a href="/openapi.json">OpenAPI 3.0.3</a>.</p>
<p class="chips">${links.join(' ')}</p>
${sections.join('\n')}
<section class="card"><h2 id="errors">Errors</h2>
<p>Every error that is no page has this form. Its code is one of those that the operation lists.</p>
${table('Members', membersOf(components.schemas.Error))}
</section>
</main>
`;
}

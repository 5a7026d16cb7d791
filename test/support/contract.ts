/**
 * Every row of every service and variant, started once, and requests that are right by its schemas.
 * The tests in `test/api/contract` send each row everything that it must refuse.
 */
import assert from 'node:assert/strict';
import { createECDH, randomUUID } from 'node:crypto';
import { after } from 'node:test';
import type { Sql } from 'postgres';
import { TABLES } from '../../scripts/routes.ts';
import type { Route } from '../../src/platform/http/route/route.ts';
import type { JsonSchema } from '../../src/platform/http/route/schema.ts';
import type { ServiceName } from '../../src/serve.ts';
import { createPlainRoutes } from '../../src/webhook/plain.ts';
import { createDatabase, type TestDatabase } from './database.ts';
import { type Call, callsOf } from './calls.ts';
import { type Answer, startGatehouse } from './gatehouse.ts';
import { addOperator } from './inbox.ts';
import { newAddress } from './logins.ts';
import { OIDC } from './oidc.ts';
import { ORIGIN, PORTAL } from './portal.ts';

export type Row = Pick<
  Route<never>,
  'pattern' | 'security' | 'path' | 'query' | 'body' | 'errors' | 'anySite' | 'replyType'
> &
  Readonly<{ method: string; failurePage?: unknown }>;

export interface Variant {
  readonly name: string;
  readonly service: ServiceName;
  /** What the tests send requests to: without what another variant has in common. */
  readonly rows: readonly Row[];
  readonly served: readonly Row[];
  readonly environment: Readonly<Record<string, string>>;
}

const rowsOf = (service: ServiceName, part: 'all' | 'withoutPages' | 'withOidc'): readonly Row[] =>
  TABLES[service]?.[part] ?? [];

/** As small as it may be for the secrets that a test stores. Requests come from many networks. */
const LIMITS = { MAX_BODY_BYTES: '16384', SECRETS_MAX_BODY_BYTES: '16384' };
const SELF_DELETION = { SELF_DELETION: 'on' };
const PROXIED = { TRUSTED_PROXIES: '127.0.0.1', ...LIMITS };

/** What a row declares, by which the rows of variants are compared. */
export function declarationOf({ method, pattern, path, query, body, security, errors }: Row) {
  const input = [path.jsonSchema, query.jsonSchema, body];
  return JSON.stringify([method, pattern, input, security, errors]);
}

/** The rows that a service with its pages declares otherwise than without them. */
function ofPages(service: ServiceName): readonly Row[] {
  const declared = new Set(rowsOf(service, 'withoutPages').map(declarationOf));
  return rowsOf(service, 'all').filter((row) => !declared.has(declarationOf(row)));
}

const variant = (
  name: string,
  service: ServiceName,
  rows: readonly Row[],
  environment: Readonly<Record<string, string>> = {},
  served = rows,
): Variant => ({ name, service, rows, served, environment: { ...PROXIED, ...environment } });
const withPages = (
  name: string,
  service: ServiceName,
  environment: Readonly<Record<string, string>>,
) => variant(name, service, ofPages(service), environment, rowsOf(service, 'all'));

const withOidc = rowsOf('identity', 'withOidc');
const ofOidc = withOidc.filter(({ pattern }) =>
  /^\/(oidc|\.well-known|account\/programs)/.test(pattern),
);

export const VARIANTS: readonly Variant[] = [
  variant('identity', 'identity', rowsOf('identity', 'withoutPages'), SELF_DELETION),
  withPages('identity with pages', 'identity', { ...PORTAL, ...SELF_DELETION }),
  variant('identity with OpenID Connect', 'identity', ofOidc, OIDC, withOidc),
  variant('secrets', 'secrets', rowsOf('secrets', 'withoutPages')),
  withPages('secrets with pages', 'secrets', { SHARE_PAGES: 'on' }),
  variant('webhook', 'webhook', rowsOf('webhook', 'withoutPages')),
  withPages('webhook with its inbox', 'webhook', { INBOX_PAGE: 'on' }),
  variant('plain webhook', 'webhook', createPlainRoutes(), { WEBHOOK_VARIANT: 'plain' }),
];

export const nameOf = ({ method, pattern }: Pick<Row, 'method' | 'pattern'>): string =>
  `${method} ${pattern}`;

export type Running = Variant & {
  readonly url: string;
  readonly call: Call;
  /** For assertions. The plain variant has none. */
  readonly database: TestDatabase | null;
};

/** For the tests of a file. */
export const start = (isChosen: (variant: Variant) => boolean = () => true): Promise<Running[]> =>
  Promise.all(VARIANTS.filter(isChosen).map(startOne));

async function startOne(variant: Variant): Promise<Running> {
  const { service, environment } = variant;
  const isPlain = environment.WEBHOOK_VARIANT === 'plain';
  const database = isPlain ? null : await createDatabase();
  const { url, listenerOf } = await startGatehouse(
    { after },
    [service],
    database?.url,
    environment,
  );
  // Its first start makes the token of a sender only if there is no token.
  if (database && service === 'webhook') await addOperator(database.sql);
  return { ...variant, url: url[service], call: callsOf(listenerOf(service)), database };
}

// --- Requests that are right by the schemas of their row

const ID = randomUUID();
/** A name means the same everywhere. */
const EXAMPLES: Readonly<Record<string, unknown>> = {
  email: 'someone@example.org',
  password: 'a passphrase for tests',
  session: `session:${ID}`,
  secret: 'A'.repeat(43),
  digest: 'A'.repeat(43),
  redirect: 'https://app.example.org/callback',
  public_key: createECDH('prime256v1').generateKeys('base64url'),
  data: { page_id: 'p' },
  url: 'https://example.org/hook',
  from: '2026-02-28',
  to: '2026-02-28',
};
const FORMATS = new Map<unknown, string>([
  ['uuid', ID],
  ['date-time', '2030-01-31T12:00:00Z'],
]);
export type Values = Readonly<Record<string, unknown>>;

/** A value that a member takes. */
export const exampleOf = (name: string, schema: JsonSchema): unknown => {
  const { format, enum: words, minimum, items, type } = schema;
  if (items) return [exampleOf(name, items)];
  const byName = EXAMPLES[name] ?? (type === 'boolean' ? false : 'text');
  return FORMATS.get(format) ?? words?.at(-1) ?? minimum ?? byName;
};

/** The required members alone. */
export const requiredOf = ({ required = [], properties = {} }: JsonSchema): Values =>
  Object.fromEntries(required.map((name) => [name, exampleOf(name, properties[name] ?? {})]));

export const bodySchemaOf = ({ body }: Row): JsonSchema | null =>
  isForm({ body }) ? body.formSchema : body.schema;
/** The sender's body may be a form, too, and is described as JSON. */
export const isForm = ({ body }: Pick<Row, 'body'>): boolean =>
  body.formSchema?.properties !== undefined;

/** Whether errors have the form of RFC 6749, 5.2. */
export const isOfProgram = ({ failurePage, replyType, security }: Row): boolean =>
  failurePage !== undefined &&
  replyType === 'application/json' &&
  !security.includes('portal_cookie');
/** A page for a person, or the form of one. */
export const isPage = (row: Row): boolean => row.failurePage !== undefined && !isOfProgram(row);

export interface Sent {
  readonly path?: Readonly<Record<string, string>>;
  /** As it stands in the address. */
  readonly query?: string;
  /** Text and bytes are sent as they are; other values as JSON, or as the fields of a form. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

export const pathOf = (pattern: string, values: Readonly<Record<string, string>> = {}): string =>
  pattern.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? ID);

/** Each request comes from a network of its own, so that no limit of guesses is reached. */
export function send(call: Call, row: Row, sent: Sent = {}): Promise<Answer> {
  const {
    path = {},
    query = String(new URLSearchParams(textsOf(requiredOf(row.query.jsonSchema)))),
  } = sent;
  const schema = bodySchemaOf(row);
  const { body = schema && requiredOf(schema) } = sent;
  const isFields = isForm(row) && typeof body === 'object' && !(body instanceof Uint8Array);
  const content = isFields ? String(new URLSearchParams(textsOf({ ...body }))) : body;
  return call(row.method, `${pathOf(row.pattern, path)}${query && `?${query}`}`, {
    ...(content === null ? {} : { body: content }),
    headers: {
      'x-forwarded-for': newAddress(),
      ...(isForm(row) ? { 'content-type': 'application/x-www-form-urlencoded' } : {}),
      ...(row.failurePage ? { host: new URL(ORIGIN).host, origin: ORIGIN } : {}),
      ...sent.headers,
    },
  });
}

const textsOf = (values: Values): Record<string, string> =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, String(value)]));

export const bearer = (token: string): Readonly<Record<string, string>> => ({
  authorization: `Bearer ${token}`,
});

// --- Tables of what callers get

/** A line of a table: method and pattern, whom it is about, and what each caller gets. */
export interface Line {
  readonly name: string;
  readonly about: string;
  readonly cells: readonly string[];
}

export const linesOf = (table: string): Line[] =>
  table
    .split('\n')
    .map((line) => line.trim().split(/ +/))
    .filter(([method = '']) => /^[A-Z]+$/.test(method))
    .map(([method, pattern, about = '', ...cells]) => ({
      name: `${method} ${pattern}`,
      about,
      cells,
    }));

/** Probes and descriptions, which take no credential. */
export const OPEN = ['/', '/livez', '/readyz', '/openapi', '/openapi.json', '/pages/{file}'].map(
  (path) => `GET ${path}`,
);

export const rowOf = (rows: readonly Row[], { name }: Line): Row =>
  rows.find((one) => nameOf(one) === name) ?? assert.fail(name);

/** @param open rows that take no credential */
export function assertComplete(
  rows: readonly Row[],
  lines: readonly Line[],
  open: readonly string[] = [],
): void {
  const known = new Set([...lines.map(({ name }) => name), ...open]);
  assert.deepEqual(rows.map(nameOf).sort(), [...known].sort());
}

/** A status, or where a browser is sent: to sign in, or on. */
export function outcomeOf({ status, headers }: Answer): string {
  if (status !== 303) return String(status);
  return headers.get('location')?.startsWith('/login?again=on&') ? 'sign' : 'done';
}

/** What a refusal by one of these statuses is called. That of 401 differs. */
const CODES: Readonly<Record<string, string>> = {
  403: 'forbidden',
  404: 'not_found',
  409: 'conflict',
};

/**
 * Each caller gets what the table says. `---` stands for what cannot be.
 * @param request what this caller sends for a line
 * @param unauthorized what 401 is called
 */
export async function assertTable<Caller extends string>(
  { call, rows }: Pick<Running, 'call' | 'rows'>,
  lines: readonly Line[],
  callers: readonly Caller[],
  request: (caller: Caller, line: Line, row: Row) => Promise<Sent>,
  unauthorized = 'unauthorized',
): Promise<void> {
  for (const line of lines) {
    const row = rowOf(rows, line);
    for (const [index, caller] of callers.entries()) {
      const { [index]: expected = '---' } = line.cells;
      if (expected === '---') continue;
      const answer = await send(call, row, await request(caller, line, row));
      const what = `${caller} about ${line.about}`;
      assert.equal(outcomeOf(answer), expected, `${line.name}: ${what}: ${answer.text}`);
      const isRefused = Number(expected) >= 400 && !row.failurePage;
      const refusal = [Number(expected), CODES[expected] ?? unauthorized] as const;
      if (isRefused) assertRefused(answer, row, refusal, [], what);
    }
  }
}

// --- Replies

const SECURITY_HEADERS = ['cache-control', 'x-content-type-options', 'content-security-policy'];

/**
 * An error in its one form: as JSON, or to a person as a page.
 * @param fields the paths that are to blame, all of them
 */
export function assertRefused(
  answer: Answer,
  row: Row,
  [status, code]: readonly [status: number, code: string],
  fields: readonly string[] | null,
  what: string,
): void {
  const { headers, json, text } = answer;
  const about = `${nameOf(row)}: ${what}: ${answer.status} ${text.slice(0, 300)}`;
  assert.equal(answer.status, status, about);
  assert.ok(
    row.errors.some((declared) => declared === code),
    `${about}: ${code} is not declared`,
  );
  for (const name of SECURITY_HEADERS) assert.ok(headers.get(name), `${about}: no ${name}`);
  assert.match(headers.get('x-request-id') ?? '', /^[\w.-]+$/, about);
  const challenge = row.pattern.startsWith('/oidc/') ? /^(Basic|Bearer) realm=/ : /^Bearer$/;
  assert.equal(challenge.test(headers.get('www-authenticate') ?? ''), status === 401, about);
  const mayRetry = status === 429 || status === 503;
  assert.equal(/^[1-9]\d*$/.test(headers.get('retry-after') ?? ''), mayRetry, about);
  if (isPage(row)) {
    assert.match(headers.get('content-type') ?? '', /^text\/html/, about);
    return;
  }
  assert.equal(headers.get('content-type'), 'application/json; charset=utf-8', about);
  if (isOfProgram(row)) {
    assert.deepEqual(Object.keys(json).sort(), ['error', 'error_description'], about);
    assert.match(json.error, /^[a-z_]+$/, about);
    return;
  }
  assert.deepEqual(Object.keys(json).sort(), ['_meta', 'data', 'error'], about);
  assert.deepEqual(json._meta, { request_id: headers.get('x-request-id') }, about);
  assert.equal(json.data, null, about);
  const { code: sent, message, fields: named = [] } = json.error;
  assert.equal(sent, code, about);
  assert.ok(message.length > 10, about);
  const paths = named.map(({ path, message: problem }: { path: string; message: string }) => {
    assert.ok(problem.length > 3, about);
    return path;
  });
  if (fields !== null) assert.deepEqual(paths.sort(), [...fields].sort(), about);
}

/** What requests change by themselves: when something was used, and how often it was refused. */
const COUNTS = ['throttles', 'unstored'];

/** A digest of everything that a service stores. */
export async function contentOf(sql: Sql, service: ServiceName): Promise<string> {
  const tables = await sql<Array<{ name: string }>>`
    select table_name as name from information_schema.tables
    where table_schema = ${service} and not table_name = any (${COUNTS}) order by name`;
  const digests = tables.map(
    ({ name }) => `
      select '${name}', md5(coalesce(string_agg(row, '' order by row), ''))
      from (select (to_jsonb(t) - '{last_used_at,last_seen_at}'::text[])::text as row
        from ${service}.${name} t) x`,
  );
  return JSON.stringify(await sql.unsafe(digests.join(' union all ')));
}

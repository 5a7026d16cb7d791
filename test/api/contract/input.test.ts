/**
 * Each row refuses each value that its schemas refuse: with the documented status, code and path,
 * and nothing is stored. Any other value is no fault of the service.
 */
import assert from 'node:assert/strict';
import { createECDH } from 'node:crypto';
import { test } from 'node:test';
import type { JsonSchema } from '../../../src/platform/http/route/schema.ts';
import {
  assertRefused,
  bearer,
  bodySchemaOf,
  contentOf,
  exampleOf,
  isForm,
  isPage,
  nameOf,
  requiredOf,
  type Row,
  type Running,
  send,
  type Sent,
  start,
} from '../../support/contract.ts';
import { ADMIN_PASSWORD, AUTH_TOKEN, ask, logIn, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { OPERATOR_TOKEN } from '../../support/inbox.ts';
import { cookieFrom, visitorOf } from '../../support/portal.ts';
import { takenValues, wrongMembers, wrongTexts } from '../../support/wrong-values.ts';

/** A form of a page, and what the sender of a link or of an event sends, names its type. */
const NEEDS_TYPE = /^POST \/(webhook|s\/|r\/|request\/|answer\/)/;

/**
 * All other rows reject an unknown parameter: a misspelled filter must not select everything. These
 * only read, and may be linked to; and the senders of events have parameters of their own.
 */
const IGNORES_QUERY =
  /^(GET \/(livez|readyz|openapi(\.json)?|links|pages\/\{file\}|inbox|(link|login|logout|account)(\/(?!.*passkey).*)?|(s|r|answer)\/\{id\}|request(\/\{id\})?)?|GET \/\.well-known\/.*|(GET|POST) \/(webhook|oidc\/(authorize|keys|logout|revoke|token|userinfo)))$/;

type Callers = (row: Row) => Pick<Sent, 'headers' | 'path'>;

/** Who may call every row of a variant. */
async function callersOf({ service, environment, url }: Running): Promise<Callers> {
  if (service === 'identity') {
    const headers = bearer(await logIn(url));
    if (!environment.SIGNIN_PAGES) return () => ({ headers });
    const fields = { username: 'admin', password: ADMIN_PASSWORD };
    const cookie = cookieFrom(await visitorOf(url)('/login', { fields }), '__Host-gatehouse');
    const { json } = await ask('GET', `${url}/api/test/`, { headers });
    // A page of a user who does not exist shows no form again.
    const path = { user_id: json.data.user.id, client_id: 'program' };
    if (environment.OIDC) {
      const program = { id: 'program', name: 'A program', redirect: 'https://app.example.org/' };
      const page = await visitorOf(url)('/account/programs', { fields: program, cookie });
      assert.equal(page.status, 200, page.text);
    }
    return (row) => ({ headers: { ...headers, cookie }, ...(isPage(row) ? { path } : {}) });
  }
  if (service === 'webhook') {
    const tokenOf = ({ pattern }: Row) => (pattern === '/webhook' ? WEBHOOK_TOKEN : OPERATOR_TOKEN);
    return (row) => ({ headers: bearer(tokenOf(row)) });
  }
  const headers = bearer(AUTH_TOKEN);
  if (!environment.SHARE_PAGES) return () => ({ headers });
  // An answer needs an open request, and the key of its link.
  const key = 'A'.repeat(43);
  const body = {
    title: 'The password of the printer',
    kind: 'text',
    public_key: createECDH('prime256v1').generateKeys('base64url'),
    digest: key,
  };
  const asked = await ask('POST', `${url}/api/store/request`, { bearer: AUTH_TOKEN, body });
  const answer = { headers: { ...headers, 'x-link-key': key }, path: { id: asked.json.id } };
  return (row) => (row.pattern === '/answer/{id}' ? answer : { headers });
}

const variants = await start();
const running = await Promise.all(
  variants.map(async (variant) => ({
    ...variant,
    sql: variant.database?.sql,
    callerOf: await callersOf(variant),
  })),
);

const INVALID_PATH = [400, 'invalid_path'] as const;
const INVALID_QUERY = [400, 'invalid_query'] as const;
const INVALID_BODY = [400, 'invalid_body'] as const;
const TOO_LARGE = [413, 'body_too_large'] as const;
const OTHER_TYPE = [415, 'unsupported_media_type'] as const;

interface Case {
  readonly what: string;
  readonly sent: Sent;
  readonly refusal: readonly [status: number, code: string];
  readonly fields: readonly string[];
}

const NO_UUIDS = ['text', '%00', '0', '00000000-0000-4000-8000-00000000000', 'x'.repeat(300)];
const NO_IDS = ['Text', '%00', '-', 'a%20b', 'x'.repeat(300)];

function* pathCases({ path }: Row): Generator<Case> {
  for (const [name, { format }] of Object.entries(path.jsonSchema.properties ?? {})) {
    const wrong = name === 'client_id' ? NO_IDS : [];
    for (const text of format === 'uuid' ? NO_UUIDS : wrong) {
      const sent = { path: { [name]: text } };
      yield { what: `${name}: ${text}`, sent, refusal: INVALID_PATH, fields: [`/${name}`] };
    }
  }
}

type Pair = readonly [name: string, value: unknown];
const encode = (pairs: readonly Pair[]) => {
  const query = new URLSearchParams();
  for (const [name, value] of pairs) query.append(name, String(value));
  return String(query);
};

/** Every member twice. */
const doubled = (schema: JsonSchema): Pair[] =>
  Object.entries(schema.properties ?? {}).flatMap(([name, member]) => {
    const pair: Pair = [name, exampleOf(name, member)];
    return [pair, pair];
  });

function* queryCases(row: Row): Generator<Case> {
  if (IGNORES_QUERY.test(nameOf(row))) return;
  const { jsonSchema: schema } = row.query;
  const refusal = INVALID_QUERY;
  const withUnknown = encode([...Object.entries(requiredOf(schema)), ['unknown', '1']]);
  yield { what: 'unknown', sent: { query: withUnknown }, refusal, fields: ['unknown'] };
  const fields = Object.keys(schema.properties ?? {});
  if (fields.length > 0)
    yield { what: 'twice', sent: { query: encode(doubled(schema)) }, refusal, fields };
  for (const { what, value, at } of wrongTexts(schema, ''))
    yield { what, sent: { query: encode(Object.entries(value)) }, refusal, fields: at };
}

function* formCases(schema: JsonSchema): Generator<Case> {
  const refusal = INVALID_BODY;
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    const pair: Pair = [name, exampleOf(name, member)];
    const body = encode([...Object.entries(requiredOf(schema)), pair, pair]);
    yield { what: `${name} twice`, sent: { body }, refusal, fields: [''] };
  }
  for (const { what, value, at } of wrongTexts(schema, '/'))
    yield { what, sent: { body: value }, refusal, fields: at };
}

/** No JSON object in UTF-8. */
const NO_OBJECTS = ['', '{', 'null', '[]', '"text"', '{}}', Buffer.from('{"a":"\xe9"}', 'latin1')];

function* jsonCases(schema: JsonSchema): Generator<Case> {
  const refusal = INVALID_BODY;
  const base = requiredOf(schema);
  for (const body of NO_OBJECTS)
    yield { what: `the body ${String(body)}`, sent: { body }, refusal, fields: [''] };
  const required = (schema.required ?? []).map((name) => `/${name}`);
  const isStrict = schema.additionalProperties === false;
  const fields = isStrict ? ['/unknown', ...required] : required;
  if (fields.length > 0)
    yield { what: 'only unknown members', sent: { body: { unknown: 1 } }, refusal, fields };
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    const pair = JSON.stringify({ [name]: exampleOf(name, member) }).slice(1, -1);
    const { [name]: _, ...others } = base;
    const rest = Object.keys(others).length > 0 ? `,${JSON.stringify(others).slice(1, -1)}` : '';
    const body = `{${pair}${rest},${pair}}`;
    yield { what: `${name} twice`, sent: { body }, refusal, fields: [`/${name}`] };
  }
  for (const { what, value, at } of wrongMembers(schema))
    yield { what, sent: { body: value }, refusal, fields: at };
  const gzip = { 'content-encoding': 'gzip' };
  yield { what: 'compressed', sent: { headers: gzip }, refusal: OTHER_TYPE, fields: [] };
}

function* bodyCases(row: Row): Generator<Case> {
  const schema = bodySchemaOf(row);
  if (!schema) return;
  // The browser passes the fields on, and the row for GET judges them.
  if (isForm(row) && !row.anySite) yield* formCases(schema);
  if (!isForm(row)) yield* jsonCases(schema);
  const large = 'x'.repeat(Math.max(20_000, 1 + (row.body.leastBytes ?? 0)));
  yield { what: 'too large', sent: { body: large }, refusal: TOO_LARGE, fields: [] };
  if (!isForm(row) && !NEEDS_TYPE.test(nameOf(row))) return;
  const headers = { 'content-type': 'text/plain' };
  yield { what: 'as text/plain', sent: { headers }, refusal: OTHER_TYPE, fields: [] };
}

const merged = (one: Sent, other: Sent): Sent => ({
  ...one,
  ...other,
  path: { ...one.path, ...other.path },
  headers: { ...one.headers, ...other.headers },
});

for (const { name, service, rows, call, sql, callerOf } of running) {
  test(`${name}: what a schema refuses is named, and nothing is stored`, async () => {
    const before = sql && (await contentOf(sql, service));
    for (const row of rows) {
      for (const { what, sent, refusal, fields } of [
        ...pathCases(row),
        ...queryCases(row),
        ...bodyCases(row),
      ]) {
        const answer = await send(call, row, merged(callerOf(row), sent));
        assertRefused(answer, row, refusal, fields, what);
      }
    }
    assert.equal(sql && (await contentOf(sql, service)), before, 'a row stored something');
  });
}

for (const { name, rows, call, environment, callerOf } of running) {
  test(`${name}: what a schema takes is never a fault of the service`, async () => {
    for (const row of rows) {
      const schema = bodySchemaOf(row);
      // The forms of the sign-in are many, and take what their page sends.
      if (!schema || (isForm(row) && !environment.OIDC)) continue;
      for (const body of takenValues(schema, isForm(row) ? 'texts' : 'members')) {
        const answer = await send(call, row, merged(callerOf(row), { body }));
        const given = JSON.stringify(body).slice(0, 300);
        const about = `${nameOf(row)}: ${given}: ${answer.status} ${answer.text.slice(0, 300)}`;
        assert.ok(answer.status < 500, about);
        const code = answer.json?.error?.code;
        assert.ok(code === undefined || row.errors.includes(code), about);
      }
    }
  });
}

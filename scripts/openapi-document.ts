/** The OpenAPI document of a service, from the rows that also route, authenticate and validate. */
import { ERRORS } from '../src/platform/http/route/errors.ts';
import type { Route, ServiceFacts, Wrapping } from '../src/platform/http/route/route.ts';
import {
  type JsonSchema,
  list,
  noInput,
  object,
  optional,
  type Schema,
  text,
} from '../src/platform/http/route/schema.ts';

const count: Schema<unknown> = { ...noInput, jsonSchema: { type: 'integer' } };
const pagination = object({
  page: count,
  limit: count,
  total: count,
  total_pages: count,
});
const links = object({
  first: text(),
  last: text(),
  prev: text(),
  next: text(),
});
const meta = object({ request_id: text() });
const failure = object({
  data: { ...noInput, jsonSchema: { type: 'object', nullable: true, enum: [null] } },
  error: object({
    code: text(),
    message: text(),
    fields: optional(list(object({ path: optional(text()), message: optional(text()) }))),
  }),
  _meta: meta,
});

const JSON_TYPE = 'application/json';
const STRING = { type: 'string' };
type Content = Readonly<Record<string, Readonly<{ schema: JsonSchema }>>>;
type Response = Readonly<{ description: string; content?: Content; headers?: object }>;
const content = (type: string, schema: JsonSchema): { content: Content } => ({
  content: { [type]: { schema } },
});

/** What the document says besides the routes. The version is that of the interface. */
export type DocumentFacts = ServiceFacts &
  Readonly<{ version: string; securitySchemes: Readonly<Record<string, object>> }>;

/** @returns an OpenAPI 3.0.3 document */
export function describe(
  routes: ReadonlyArray<Route<unknown>>,
  { title, about, version, wrapping, securitySchemes }: DocumentFacts,
) {
  const paths: Record<string, Record<string, Operation>> = {};
  for (const route of routes) {
    const method = route.method.toLowerCase();
    paths[route.pattern] = { ...paths[route.pattern], [method]: operation(route, wrapping) };
  }
  const tags = [...new Set(routes.map(tagOf))].sort().map((name) => ({ name }));
  const names = new Set(routes.flatMap(({ security }) => security));
  const schemes = Object.entries(securitySchemes).filter(([name]) => names.has(name));
  return {
    openapi: '3.0.3',
    info: { title, version, description: about },
    servers: [{ url: '/' }],
    tags,
    paths,
    components: {
      securitySchemes: Object.fromEntries(schemes),
      schemas: { Error: failure.jsonSchema },
    },
  };
}

/** What the path begins with, such as `user` for `/api/user/`. */
const tagOf = ({ pattern }: Route<unknown>) => /^\/(?:api\/)?(\w+)/.exec(pattern)?.[1] ?? 'index';

/**
 * Such as `get_api_user_user_id`. Paths are part of the interface, so it does not change either.
 */
const operationId = ({ method, pattern }: Route<unknown>) =>
  [method.toLowerCase(), ...(pattern.match(/\w+/g) ?? ['index'])].join('_');

export type Operation = ReturnType<typeof operation>;
function operation(route: Route<unknown>, wrapping: Wrapping) {
  const { security, path, query, body } = route;
  const parameters = [
    ...parametersIn('path', path.jsonSchema),
    ...parametersIn('query', query.jsonSchema),
  ];
  const responses: Record<string, Response> = {
    ...successes(route, wrapping),
    ...errorResponses(route),
  };
  return {
    operationId: operationId(route),
    tags: [tagOf(route)],
    summary: route.summary,
    ...(parameters.length > 0 && { parameters }),
    ...(body.schema && { requestBody: requestBody(body.schema, body.formSchema) }),
    security: security.map((name) => ({ [name]: [] })), // empty: no credential is needed
    responses,
  };
}

/** @param formSchema null if only JSON is accepted, equal to the schema if only a form is */
function requestBody(schema: JsonSchema, formSchema: JsonSchema | null) {
  const json = schema === formSchema ? {} : content(JSON_TYPE, schema).content;
  const form = formSchema && content('application/x-www-form-urlencoded', formSchema).content;
  return { required: true, content: { ...json, ...form } };
}

const parametersIn = (location: 'path' | 'query', { properties = {}, required }: JsonSchema) =>
  Object.entries(properties).map(([name, schema]) => ({
    name,
    in: location,
    required: required?.includes(name) ?? false,
    schema,
  }));

function successes(route: Route<unknown>, wrapping: Wrapping) {
  const { reply, replyType = JSON_TYPE, paged, replyHeaders = [] } = route;
  const { emptyReply, failurePage, method } = route;
  const text = replyType === JSON_TYPE ? { type: 'object' } : STRING;
  const schema = reply ? wrapped(reply, wrapping, paged).jsonSchema : text;
  const isForm = failurePage !== undefined && method !== 'GET';
  return {
    [route.success]: {
      description: 'Success',
      ...headersNamed(replyHeaders),
      ...content(replyType, schema),
    },
    ...(emptyReply && { 204: { description: emptyReply } }),
    ...(isForm && { 303: { description: 'The next page', ...headersNamed(['Location']) } }),
  };
}

function wrapped(reply: Schema<unknown>, wrapping: Wrapping, paged: Route<unknown>['paged']) {
  if (wrapping === 'bare') return reply;
  if (paged === 'never') return object({ data: reply, _meta: meta });
  const isOptional = paged === 'if asked';
  return object({
    data: reply,
    _meta: object({
      request_id: text(),
      pagination: isOptional ? optional(pagination) : pagination,
    }),
    _links: isOptional ? optional(links) : links,
  });
}

/** Of all replies with this status. */
const ERROR_HEADERS: Readonly<Record<number, readonly string[]>> = {
  303: ['Location'],
  401: ['WWW-Authenticate'],
  429: ['Retry-After'],
  503: ['Retry-After'],
};

const headersNamed = (names: readonly string[]) =>
  names.length === 0
    ? {}
    : { headers: Object.fromEntries(names.map((name) => [name, { schema: STRING }])) };

/** A page shows its failures to a person. */
function errorResponses({ errors: codes, failurePage }: Route<unknown>) {
  const shown = failurePage
    ? content('text/html', STRING)
    : content(JSON_TYPE, { $ref: '#/components/schemas/Error' });
  const responses: Record<string, Response> = {};
  for (const code of codes) {
    const [status] = ERRORS[code];
    const names = codes.filter((one) => ERRORS[one][0] === status).sort();
    responses[status] = {
      description: names.join(', '),
      ...headersNamed(ERROR_HEADERS[status] ?? []),
      ...shown,
    };
  }
  return responses;
}

import type { DocumentFacts, Envelope, Route } from './call.ts';
import { type ErrorCode, ERRORS } from './errors.ts';
import type { JsonSchema } from './shape.ts';

const error: JsonSchema = {
  type: 'object',
  properties: {
    code: { type: 'string' },
    message: { type: 'string' },
    fields: {
      type: 'array',
      items: { type: 'object', properties: { path: { type: 'string' }, message: { type: 'string' } } },
    },
  },
  required: ['code', 'message'],
};
const meta: JsonSchema = { type: 'object', properties: { request_id: { type: 'string' } }, required: ['request_id'] };
const members = (names: readonly string[], schema: JsonSchema): JsonSchema => ({
  type: 'object',
  properties: Object.fromEntries(names.map((name) => [name, schema])),
  required: names,
});
const failure: JsonSchema = {
  type: 'object',
  properties: { data: { nullable: true, enum: [null] }, error, _meta: meta },
  required: ['data', 'error', '_meta'],
};
const pagination = members(['page', 'limit', 'total', 'total_pages'], { type: 'integer' });
const links = members(['first', 'last', 'prev', 'next'], { type: 'string' });

/** The OpenAPI 3.0.3 document, from the rows that also route, authenticate and validate. */
export function describe<Service>(routes: ReadonlyArray<Route<Service>>, facts: DocumentFacts): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const route of routes) {
    const path = (paths[route.pattern] ??= {});
    path[route.method.toLowerCase()] = operation(route, facts.envelope);
  }
  return {
    openapi: '3.0.3',
    info: { title: facts.title, version: facts.version },
    paths,
    components: {
      securitySchemes: facts.securitySchemes,
      schemas: { Error: failure },
    },
  };
}

function operation<Service>(route: Route<Service>, envelope: Envelope): object {
  const { path, query, body, reply } = route.schemas;
  const parametersIn = (location: 'path' | 'query', schema: JsonSchema) =>
    Object.entries(schema.properties ?? {}).map(([name, one]) => ({
      name,
      in: location,
      required: schema.required?.includes(name) ?? false,
      schema: one,
    }));
  const parameters = [...parametersIn('path', path), ...parametersIn('query', query)];
  return {
    summary: route.summary,
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(body ? { requestBody: { required: true, content: { 'application/json': { schema: body } } } } : {}),
    ...(route.security.length > 0 ? { security: route.security.map((name) => ({ [name]: [] })) } : {}),
    responses: {
      [route.success]: {
        description: 'Success',
        ...(reply ? { content: { 'application/json': { schema: wrapped(reply, envelope, route.paged) } } } : {}),
      },
      ...errorResponses(route.errors),
    },
  };
}

function wrapped(reply: JsonSchema, envelope: Envelope, paged: Route<unknown>['paged']): JsonSchema {
  if (envelope === 'bare') return reply;
  if (paged === 'never') {
    return { type: 'object', properties: { data: reply, _meta: meta }, required: ['data', '_meta'] };
  }
  const always = paged === 'always';
  const pagedMeta = {
    ...meta,
    properties: { ...meta.properties, pagination },
    required: ['request_id', ...(always ? ['pagination'] : [])],
  };
  return {
    type: 'object',
    properties: { data: reply, _meta: pagedMeta, _links: links },
    required: ['data', '_meta', ...(always ? ['_links'] : [])],
  };
}

function errorResponses(codes: readonly ErrorCode[]): Record<string, object> {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of codes) byStatus.set(ERRORS[code].status, [...(byStatus.get(ERRORS[code].status) ?? []), code]);
  const content = { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } };
  const sorted = [...byStatus].sort(([one], [other]) => one - other);
  const entries = sorted.map(([status, names]) => [status, { description: names.sort().join(', '), content }] as const);
  return Object.fromEntries(entries);
}

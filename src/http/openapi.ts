import type { DocumentFacts, Envelope, Route } from './call.ts';
import { type ErrorCode, ERRORS } from './errors.ts';
import type { JsonSchema } from './shape.ts';

type Properties = Readonly<Record<string, JsonSchema>>;

const object = (
  properties: Properties,
  required: readonly string[] = Object.keys(properties),
): JsonSchema => ({ type: 'object', properties, required });
const members = (names: readonly string[], schema: JsonSchema): JsonSchema =>
  object(Object.fromEntries(names.map((name) => [name, schema])));

const string: JsonSchema = { type: 'string' };
const fields: JsonSchema = {
  type: 'array',
  items: { type: 'object', properties: { path: string, message: string } },
};
const error = object({ code: string, message: string, fields }, ['code', 'message']);
const meta = object({ request_id: string });
const failure = object({ data: { nullable: true, enum: [null] }, error, _meta: meta });
const pagination = members(['page', 'limit', 'total', 'total_pages'], { type: 'integer' });
const links = members(['first', 'last', 'prev', 'next'], string);

/** The OpenAPI 3.0.3 document, from the rows that also route, authenticate and validate. */
export function describe<Service>(
  routes: ReadonlyArray<Route<Service>>,
  facts: DocumentFacts,
): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const route of routes) {
    const path = (paths[route.pattern] ??= {});
    path[route.method.toLowerCase()] = operation(route, facts.envelope);
  }
  return {
    openapi: '3.0.3',
    info: { title: facts.title, version: facts.version },
    paths,
    components: { securitySchemes: facts.securitySchemes, schemas: { Error: failure } },
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
    ...(body
      ? { requestBody: { required: true, content: { 'application/json': { schema: body } } } }
      : {}),
    ...(route.security.length > 0
      ? { security: route.security.map((name) => ({ [name]: [] })) }
      : {}),
    responses: {
      [route.success]: {
        description: 'Success',
        ...(reply
          ? { content: { 'application/json': { schema: wrapped(reply, envelope, route.paged) } } }
          : {}),
      },
      ...errorResponses(route.errors),
    },
  };
}

function wrapped(
  reply: JsonSchema,
  envelope: Envelope,
  paged: Route<unknown>['paged'],
): JsonSchema {
  if (envelope === 'bare') return reply;
  if (paged === 'never') return object({ data: reply, _meta: meta });
  const always = paged === 'always';
  const pagedMeta = object({ request_id: string, pagination }, always ? undefined : ['request_id']);
  return object(
    { data: reply, _meta: pagedMeta, _links: links },
    always ? undefined : ['data', '_meta'],
  );
}

function errorResponses(codes: readonly ErrorCode[]): Record<string, object> {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of codes)
    byStatus.set(ERRORS[code].status, [...(byStatus.get(ERRORS[code].status) ?? []), code]);
  const content = { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } };
  const sorted = [...byStatus].sort(([one], [other]) => one - other);
  const entries = sorted.map(
    ([status, names]) => [status, { description: names.sort().join(', '), content }] as const,
  );
  return Object.fromEntries(entries);
}

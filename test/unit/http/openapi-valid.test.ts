/** The documents are valid OpenAPI 3.0.3, and the check finds what is not. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Route } from '../../../src/platform/http/route/route.ts';
import { describe as describeRoutes } from '../../../scripts/openapi-document.ts';
import { array, child, documents, isObject, type Json, object } from '../../support/openapi.ts';

/** What is wrong with a document, by the rules of OpenAPI 3.0.3 that ours can break. */
function problemsOf(document: unknown): string[] {
  const problems: string[] = [];
  if (child(document, 'openapi') !== '3.0.3') problems.push('openapi: must be 3.0.3');
  for (const name of ['title', 'version'])
    if (typeof child(document, 'info', name) !== 'string') problems.push(`info: no ${name}`);
  for (const [path, item] of Object.entries(object(child(document, 'paths')))) {
    if (!path.startsWith('/')) problems.push(`${path}: must begin with a slash`);
    for (const [method, operation] of Object.entries(object(item)))
      problems.push(...operationProblems(document, path, method, operation));
  }
  const schemas = Object.keys(object(child(document, 'paths'))).map((path) =>
    path.replace(/\{[^}]*\}/g, '{}').replace(/(.)\/$/, '$1'),
  );
  const ids = Object.values(object(child(document, 'paths'))).flatMap((item) =>
    Object.values(object(item)).map((operation) => child(operation, 'operationId')),
  );
  if (new Set(ids).size < ids.length) problems.push('an operationId twice');
  for (const [index, schema] of schemas.entries())
    if (schemas.indexOf(schema) < index)
      problems.push(`${schema}: two patterns match the same paths`);
  checkSchemas(document, '#', problems, document);
  return problems;
}

function operationProblems(
  document: unknown,
  path: string,
  method: string,
  operation: unknown,
): string[] {
  const at = `${method} ${path}`;
  const problems: string[] = [];
  if (!['get', 'put', 'post', 'delete', 'patch'].includes(method))
    problems.push(`${at}: no such method`);
  if (!child(operation, 'summary')) problems.push(`${at}: no summary`);
  const parameters = array(child(operation, 'parameters')).map(object);
  const names = parameters.map(({ in: place, name }) => `${String(place)} ${String(name)}`);
  if (new Set(names).size !== names.length) problems.push(`${at}: a parameter twice`);
  const inPattern = [...path.matchAll(/\{([^}]+)\}/g)].map(([, name]) => `path ${name}`);
  for (const name of inPattern)
    if (!names.includes(name)) problems.push(`${at}: ${name} is not declared`);
  for (const name of names)
    if (name.startsWith('path ') && !inPattern.includes(name))
      problems.push(`${at}: ${name} is not in the pattern`);
  for (const one of parameters) {
    if (one.in === 'path' && one.required !== true)
      problems.push(`${at}: a path parameter must be required`);
    if (!isObject(one.schema)) problems.push(`${at}: a parameter without a schema`);
  }
  for (const one of Object.values(object(child(operation, 'requestBody', 'content'))))
    if (!isObject(child(one, 'schema'))) problems.push(`${at}: a body without a schema`);
  if (!child(operation, 'operationId')) problems.push(`${at}: no operationId`);
  if (!Array.isArray(child(operation, 'security'))) problems.push(`${at}: no security`);
  for (const scheme of array(child(operation, 'security')).flatMap((one) =>
    Object.keys(object(one)),
  )) {
    if (!child(document, 'components', 'securitySchemes', scheme))
      problems.push(`${at}: no security scheme ${scheme}`);
  }
  const responses = Object.entries(object(child(operation, 'responses')));
  if (!responses.some(([status]) => /^2\d\d$/.test(status))) problems.push(`${at}: no success`);
  for (const [status, response] of responses) {
    if (!/^[1-5]\d\d$/.test(status)) problems.push(`${at}: ${status} is no status`);
    if (!child(response, 'description')) problems.push(`${at}: ${status} has no description`);
  }
  return problems;
}

/** Looks at every node: references lead somewhere, and a schema admits at least one value. */
function checkSchemas(value: unknown, at: string, problems: string[], document: unknown): void {
  if (Array.isArray(value))
    return value.forEach((one, index) => checkSchemas(one, `${at}/${index}`, problems, document));
  if (!isObject(value)) return;
  if (
    typeof value.$ref === 'string' &&
    !child(document, ...value.$ref.replace(/^#\//, '').split('/'))
  )
    problems.push(`${at}: ${value.$ref} leads nowhere`);
  if (Array.isArray(value.enum) && value.enum.length === 0)
    problems.push(`${at}: an empty enum admits no value`);
  if (value.nullable === true && typeof value.type !== 'string')
    problems.push(`${at}: nullable without a type`);
  if (value.type === 'array' && !isObject(value.items))
    problems.push(`${at}: an array without items`);
  for (const name of array(value.required)) {
    if (!Object.hasOwn(object(value.properties), String(name)))
      problems.push(`${at}: ${String(name)} is required but not described`);
  }
  for (const [name, one] of Object.entries(value))
    checkSchemas(one, `${at}/${name}`, problems, document);
}

for (const [name, , document] of documents) {
  test(`${name}: the document is valid OpenAPI 3.0.3`, () => {
    assert.deepEqual(problemsOf(document), []);
  });
}

const GOOD_ROW = {
  method: 'POST',
  pattern: '/a',
  summary: 'a',
  success: 200,
  security: [],
  paged: 'never',
  path: { jsonSchema: {} },
  query: { jsonSchema: {} },
  body: { schema: null },
  reply: null,
  errors: ['internal'],
};
const ID = { jsonSchema: { properties: { id: {} }, required: ['id'] } };

const BROKEN: ReadonlyArray<readonly [problem: string, ...rows: Json[]]> = [
  ['post /a/{id}: path id is not declared', { pattern: '/a/{id}' }],
  ['post /a: path id is not in the pattern', { path: ID }],
  ['post /a: no security scheme bearer', { security: ['bearer'] }],
  [
    '#/paths//a/post/requestBody/content/application/json/schema: an empty enum admits no value',
    { body: { schema: { enum: [] } } },
  ],
  [
    '/a/{}: two patterns match the same paths',
    ...['/a/{id}', '/a/{name}'].map((pattern) => ({
      pattern,
      path: ID,
    })),
  ],
  ['/a: two patterns match the same paths', { pattern: '/a' }, { pattern: '/a/' }],
];

test('the check finds each planted problem', () => {
  const problemsOfRows = (...rows: Json[]) => {
    const routes = rows.map((row) => ({ ...GOOD_ROW, ...row }) as unknown as Route<unknown>);
    return problemsOf(
      describeRoutes(routes, {
        title: 't',
        version: '1',
        wrapping: 'bare',
        unavailable: 'unavailable',
        securitySchemes: {},
        about: '',
      }),
    );
  };
  assert.deepEqual(problemsOfRows({}), []);
  for (const [problem, ...rows] of BROKEN)
    assert.ok(
      problemsOfRows(...rows).includes(problem),
      `${problem}: ${problemsOfRows(...rows).join('; ')}`,
    );
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { json } from '../../../src/platform/http/route/json-body.ts';
import {
  anonymous,
  type Guard,
  route,
  routeDefaults,
} from '../../../src/platform/http/route/route.ts';
import { object, text } from '../../../src/platform/http/route/schema.ts';
import { bearerGuard } from '../../support/listener.ts';

const large = (guard: Guard<null, null>) =>
  route({
    ...routeDefaults,
    method: 'POST',
    pattern: '/large',
    summary: 'for a test',
    guard,
    body: json(object({ name: text() })),
    maxBodyBytes: () => 1_000_000,
    reply: null,
    handle: async () => ({ data: null }),
  });

test('a route that asks for no credential cannot read a large body', () => {
  assert.equal(large(bearerGuard).pattern, '/large');
  assert.throws(
    () => large(anonymous),
    /^Error: internal error: \/large reads a large body without a credential$/,
  );
});

test('a pattern and its schema name the same parameters', () => {
  const named = (name: string) =>
    route({
      ...routeDefaults,
      method: 'GET',
      pattern: '/page/{page_id}',
      summary: 'for a test',
      guard: anonymous,
      path: object({ [name]: text() }),
      reply: null,
      handle: async () => ({ data: null }),
    });
  assert.equal(named('page_id').pattern, '/page/{page_id}');
  assert.throws(() => named('id'), {
    message: 'internal error: the path schema of /page/{page_id} has the parameters "id"',
  });
});

/** The documents of the services as they are served, and what stands in them. */
import assert from 'node:assert/strict';
import { createRoutes as createIdentityRoutes } from '../../src/identity/routes.ts';
import type { Route } from '../../src/platform/http/route/route.ts';
import { TABLES } from '../../scripts/routes.ts';
import { REQUEST } from './request-info.ts';

export type Json = Readonly<Record<string, unknown>>;

export const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
export const child = (value: unknown, ...names: readonly string[]): unknown =>
  names.reduce<unknown>(
    (at, name) => (isObject(at) && Object.hasOwn(at, name) ? at[name] : undefined),
    value,
  );
export const object = (value: unknown): Json => (isObject(value) ? value : {});
export const array = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** The document as it is served. */
async function documentOf<Service>(
  rows: ReadonlyArray<Route<Service>>,
  service: Service,
): Promise<unknown> {
  const row = rows.find(({ pattern }) => pattern === '/openapi.json');
  const reply = await row?.answer(REQUEST, service, async () => Buffer.alloc(0));
  assert.ok(reply && 'text' in reply && reply.text instanceof Uint8Array);
  assert.match(reply.contentType, /^application\/json/);
  return JSON.parse(Buffer.from(reply.text).toString());
}

/** The document's row has no use for a service. */
const noService = new Proxy(
  {},
  { get: (_, name) => assert.fail(`the document asked the service for ${String(name)}`) },
);
const identity = await createIdentityRoutes(null);
const webhook = TABLES.webhook?.all ?? [];
const secrets = TABLES.secrets?.all ?? [];

export const documents: ReadonlyArray<
  readonly [name: string, rows: ReadonlyArray<Omit<Route<unknown>, 'answer'>>, document: unknown]
> = [
  ['identity', identity, await documentOf(identity as ReadonlyArray<Route<unknown>>, noService)],
  ['secrets', secrets, await documentOf(secrets as ReadonlyArray<Route<unknown>>, noService)],
  ['webhook', webhook, await documentOf(webhook as ReadonlyArray<Route<unknown>>, noService)],
];

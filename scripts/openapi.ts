/**
 * A step of the build: writes `src/SERVICE/openapi/*.json`, which the service serves at
 * `/openapi.json`, and beside each the page at `/openapi`. The limits of secrets are the widest
 * that an operator may set.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { FACTS as IDENTITY } from '../src/identity/routes.ts';
import { FACTS as SECRETS } from '../src/secrets/routes.ts';
import { createPlainRoutes } from '../src/webhook/plain.ts';
import { FACTS as WEBHOOK } from '../src/webhook/routes.ts';
import { describe, type DocumentFacts } from './openapi-document.ts';
import { page } from './openapi-page.ts';
import { root } from './reading.ts';
import { TABLES } from './routes.ts';

const bearer = { type: 'http', scheme: 'bearer' };

const DOCUMENTS: Readonly<Record<'identity' | 'secrets' | 'webhook', DocumentFacts>> = {
  identity: {
    ...IDENTITY,
    version: '0.0.1',
    securitySchemes: {
      bearer: { ...bearer, bearerFormat: 'session:<base64-encoded token>' },
      api_key: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
      cookie: { type: 'apiKey', in: 'cookie', name: 'session' },
      access_token: {
        ...bearer,
        description: 'An access token that OpenID Connect gave to a program',
      },
      portal_cookie: { type: 'apiKey', in: 'cookie', name: '__Host-gatehouse' },
    },
  },
  secrets: {
    ...SECRETS,
    version: '0.1.0',
    securitySchemes: {
      bearer,
      link_key: {
        type: 'apiKey',
        in: 'header',
        name: 'X-Link-Key',
        description: 'The key in the link of a request: 32 bytes, in Base64url',
      },
    },
  },
  webhook: {
    ...WEBHOOK,
    version: '0.1.0',
    securitySchemes: { token: { type: 'apiKey', in: 'query', name: 'token' }, bearer },
  },
};

/** @returns each file, relative to the project, and its text */
function descriptions(): ReadonlyArray<readonly [file: string, text: string]> {
  const documents = Object.entries(DOCUMENTS).flatMap(([name, facts]) => {
    const { all = [], withoutPages = [], withOidc = [] } = TABLES[name] ?? {};
    const tables = { 'with-pages': all, 'without-pages': withoutPages, 'with-oidc': withOidc };
    return Object.entries(tables)
      .filter(([, rows]) => rows.length > 0)
      .map(([table, rows]) => [`${name}/openapi/${table}`, describe(rows, facts)] as const);
  });
  const plain = describe(createPlainRoutes(), DOCUMENTS.webhook);
  return [...documents, ['webhook/openapi/plain', plain] as const].flatMap(([name, document]) => [
    [`src/${name}.json`, `${JSON.stringify(document)}\n`] as const,
    [`src/${name}.html`, page(document)] as const,
  ]);
}

for (const [file, text] of descriptions()) {
  mkdirSync(dirname(join(root, file)), { recursive: true });
  writeFileSync(join(root, file), text);
}

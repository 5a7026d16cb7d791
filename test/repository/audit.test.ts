/** What `make audit` prints of the routes is what the services serve. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { root } from '../../scripts/reading.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { ask, startGatehouse } from '../support/gatehouse.ts';
import { PORTAL } from '../support/portal.ts';

const SERVICES = ['identity', 'secrets', 'webhook'] as const;
const run = promisify(execFile);

interface OpenApi {
  readonly paths: Record<string, Record<string, { readonly security?: readonly object[] }>>;
}

/** Method, pattern and credentials of each route that a service describes. */
function describedRoutes({ paths }: OpenApi): string[] {
  return Object.entries(paths).flatMap(([pattern, operations]) =>
    Object.entries(operations).map(([method, { security = [] }]) => {
      const credentials = security.flatMap((scheme) => Object.keys(scheme)).join('|');
      return [method.toUpperCase(), pattern, credentials || 'none'].join(' ');
    }),
  );
}

/** Those that `make audit` prints for a service. */
function printedRoutes(output: string, service: string): string[] {
  const section = output.split('=== serve ').find((text) => text.startsWith(service)) ?? '';
  const list = /\nRoutes: .*\n((?: {2}.*\n)+)/.exec(section)?.[1] ?? '';
  const lines = list.trimEnd().split('\n');
  return lines.map((line) => line.trim().split(/ +/).slice(0, 3).join(' '));
}

test('the audit lists every route that a service serves, with its method and its credentials', async (context) => {
  const database = await createEmptyDatabase(context);
  const pages = { ...PORTAL, SHARE_PAGES: 'on', INBOX_PAGE: 'on' };
  const { url } = await startGatehouse(context, SERVICES, database.url, pages);
  const audit = await run(process.execPath, ['--import', 'tsx', 'scripts/audit.ts'], { cwd: root });
  for (const service of SERVICES) {
    const { json } = await ask('GET', `${url[service]}/openapi.json`);
    const described = describedRoutes(json).sort();
    assert.ok(described.includes('GET /openapi.json none'), service);
    assert.deepEqual(printedRoutes(audit.stdout, service).sort(), described, service);
  }
});

/**
 * `npm pack`: writes the TypeScript types of the OpenAPI documents into `dist/`, with a pinned tool
 * from the npm registry.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { root } from './reading.ts';

const TOOL = 'openapi-typescript@7.13.0';
/** The document of each service with all of its routes. */
const DOCUMENTS = { identity: 'with-oidc', secrets: 'with-pages', webhook: 'with-pages' };

function write(service: string, name: string) {
  const folder = join(root, 'dist', service, 'openapi');
  const files = [join(folder, `${name}.json`), '--output', join(folder, 'types.d.ts')];
  const { status } = spawnSync('npm', ['exec', '--yes', '--', TOOL, ...files], {
    stdio: ['ignore', 2, 2],
  });
  if (status !== 0) throw new Error(`${TOOL} could not write the types of ${service}`);
}

if (process.env.npm_config_offline === 'true') {
  process.stderr.write('offline: the package gets no types of the OpenAPI documents\n');
} else {
  for (const [service, name] of Object.entries(DOCUMENTS)) write(service, name);
}

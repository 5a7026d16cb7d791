/** The documented Caddy configurations on a real Caddy: of one program, and of twenty. */
import { test } from 'node:test';
import { assertPreflights, createAccess, testForwardAuth } from './cases.ts';
import { startPrograms, testPrograms } from './programs.ts';
import { deployed, documentedBlock, startProxy, startProxySetup } from './setup.ts';

const setup = await startProxySetup();
const CONFIGURATION = deployed('caddy/app.caddyfile', {
  3000: setup.port,
  5000: setup.upstream.port,
});
const access = await createAccess(setup, await startProxy('caddy', CONFIGURATION));
testPrograms(await startPrograms('caddy'));

test('with the documented exception, a preflight reaches the program and nothing else', async () => {
  const block = documentedBlock('docs/proxy-caddy.md', 'reverse_proxy @preflight');
  const [matcher = '', pass = ''] = block
    .replaceAll('127.0.0.1:5000', `127.0.0.1:${setup.upstream.port}`)
    .split('# in "route", before "forward_auth"\n');
  const changed = CONFIGURATION.replace('\troute {\n', `${matcher}\troute {\n`).replace(
    '\t\tforward_auth @admin',
    `${pass}\t\tforward_auth @admin`,
  );
  await assertPreflights(setup, await startProxy('caddy', changed));
});

testForwardAuth(access, 502, ['_', '.']);

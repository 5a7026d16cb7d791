/** The documented Caddy configurations on a real Caddy: of one program, and of twenty. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertPreflights, createAccess, identityOf, testForwardAuth } from './cases.ts';
import { startPrograms, testPrograms } from './programs.ts';
import { bearer, deployed, documentedBlock, NAMES, startProxy, startProxySetup } from './setup.ts';

const setup = await startProxySetup();
const CONFIGURATION = deployed('caddy/app.caddyfile', {
  3000: setup.port,
  5000: setup.upstream.port,
});
const access = await createAccess(setup, await startProxy('caddy', CONFIGURATION));
testPrograms(await startPrograms('caddy'));

test('headers that some languages normalize to ours never reach the program', async () => {
  const spellings = [
    (name: string) => name.replaceAll('-', '_'),
    (name: string) => name.replaceAll('-', '_').toLowerCase(),
    (name: string) => name.replaceAll('-', '.'),
    (name: string) => name.replace('Auth-', 'Auth_'),
    (name: string) => name.replace('X-', 'x.'),
  ];
  const own = NAMES.map((name) => name.toLowerCase());
  for (const [path, user] of [
    ['/', 'admin'],
    ['/login', undefined],
  ] as const) {
    for (const spell of spellings) {
      const forged = NAMES.map((name) => [spell(name), 'true'] as const);
      const headers = [...forged, ...bearer(setup.admin)];
      const identity = identityOf(await access.passes({ path, headers }));
      assert.equal(identity['x-auth-username'], user);
      assert.ok(
        Object.keys(identity).every((name) => own.includes(name)),
        spell('X-Auth-Email'),
      );
    }
  }
});

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

testForwardAuth(access, 502);

/** The documented nginx configurations on a real nginx: of one program, and of twenty. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertPreflights, createAccess, testForwardAuth } from './cases.ts';
import { startPrograms, testPrograms } from './programs.ts';
import {
  bearer,
  deployed,
  documentedBlock,
  request,
  startProxy,
  startProxySetup,
} from './setup.ts';

const setup = await startProxySetup();
const CONFIGURATION = deployed('nginx/app.conf', { 3000: setup.port, 5000: setup.upstream.port });
const port = await startProxy('nginx', CONFIGURATION);
const access = await createAccess(setup, port);
const ofAdmin = bearer(setup.admin);
testPrograms(await startPrograms('nginx'));

test('Gatehouse receives only the credential, so other headers cannot exceed its limit', async () => {
  const headers = [1, 2, 3, 4].map((index) => [`X-Large-${index}`, 'x'.repeat(6_000)] as const);
  await access.passes({ headers: [...headers, ...ofAdmin] });
  await access.rejects(401, { headers });
});

test('an empty header is not sent to the program', async () => {
  const { key } = await setup.addKey(setup.admin, { user_id: null });
  const { headers } = await access.passes({ headers: bearer(key) });
  const names = headers.map(([name]) => name).filter((name) => name.startsWith('X-Auth'));
  assert.deepEqual(names, ['X-Auth-Super-Admin', 'X-Auth-Key-Id']);
});

test('clients cannot request the internal path of the check', async () => {
  const ends = ['', 'verify', 'verify-super-admin', 'verify/x'].map((end) => `/gatehouse/${end}`);
  for (const path of [...ends, '/x/../gatehouse/verify']) {
    for (const headers of [[], ofAdmin]) await access.rejects(404, { path, headers });
  }
});

test('a program whose path accepts larger bodies gets them after the check', async () => {
  const larger = await startProxy(
    'nginx',
    CONFIGURATION.replace('location / {\n', 'location / {\n client_max_body_size 100m;\n'),
  );
  const body = 'x'.repeat(3_000_000);
  for (const chunked of [false, true]) {
    const sent = { method: 'POST', body, chunked };
    const answer = await request(larger, { ...sent, headers: ofAdmin });
    assert.deepEqual([answer.status, answer.json?.body?.length], [200, body.length]);
    assert.equal((await request(larger, sent)).status, 401);
    assert.equal((await request(port, { ...sent, headers: ofAdmin })).status, 413);
  }
});

test('with the documented exception, a preflight reaches the program and nothing else', async () => {
  const block = documentedBlock('docs/proxy-nginx.md', '@preflight');
  const [map = '', locations = ''] = block
    .replaceAll('127.0.0.1:5000', `127.0.0.1:${setup.upstream.port}`)
    .split('# in "server"\n');
  const changed = map + CONFIGURATION.replace('server {\n', `server {\n${locations}`);
  await assertPreflights(setup, await startProxy('nginx', changed));
});

testForwardAuth(access, 500, ['_', '.', '!', '~', '+']);

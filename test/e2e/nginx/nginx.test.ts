/** The documented nginx configuration on a real nginx. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { bearer, NAMES } from './access.ts';
import { testFailingClosed, testForwardAuth, testPreflights } from './cases.ts';
import {
  completeNginx,
  documented,
  documentedBlock,
  identityOf,
  nginxCommand,
  request,
  startProxySetup,
} from './setup.ts';
import { start } from '../programs.ts';

const setup = await startProxySetup();

async function startNginx(change = (configuration: string) => configuration): Promise<number> {
  const { port } = await start(
    { after },
    {
      name: 'nginx',
      unprivileged: true,
      prepare(directory, free) {
        const configuration = documented('nginx', {
          'listen 80;': `listen 127.0.0.1:${free};`,
          '127.0.0.1:3000': `127.0.0.1:${setup.gatehouse.port}`,
          '127.0.0.1:5000': `127.0.0.1:${setup.upstream.port}`,
        });
        const file = join(directory, 'nginx.conf');
        writeFileSync(file, completeNginx(change(configuration)));
        return { command: nginxCommand(directory, file) };
      },
    },
  );
  return port;
}

const port = await startNginx();

const proxy = { port, statusWithoutGatehouse: 500 };
await testForwardAuth(setup, proxy);

test('headers that some languages normalize to ours never reach the program', async () => {
  for (const mark of ['_', '.', '!', '~', '+']) {
    const forged = NAMES.map((name) => [name.replaceAll('-', mark), 'true'] as const);
    const answer = await request(port, { headers: [...forged, ...bearer(setup.admin)] });
    assert.deepEqual([answer.status, identityOf(answer.json)['x-auth-username']], [200, 'admin']);
    assert.deepEqual(
      Object.keys(identityOf(answer.json)).filter((name) => name.includes(mark)),
      [],
    );
  }
});

test('Gatehouse receives only the credential, so other headers cannot exceed its limit', async () => {
  const headers = Array.from(
    { length: 4 },
    (_, index) => [`X-Large-${index}`, 'x'.repeat(6_000)] as const,
  );
  assert.equal(
    (await request(port, { headers: [...headers, ...bearer(setup.admin)] })).status,
    200,
  );
  assert.equal((await request(port, { headers })).status, 401);
});

test('an empty header is not sent to the program', async () => {
  const { key } = await setup.addKey(setup.admin, { user_id: null });
  const answer = await request(port, { headers: bearer(key) });
  const received: string[] = answer.json.headers.map(([name]: [string]) => name);
  assert.deepEqual(
    received.filter((name) => name.startsWith('X-Auth')),
    ['X-Auth-Super-Admin', 'X-Auth-Key-Id'],
  );
});

test('clients cannot request the internal path of the check', async () => {
  const paths = [
    '/gatehouse/',
    '/gatehouse/verify',
    '/gatehouse/verify-super-admin',
    '/gatehouse/verify/x',
  ];
  for (const path of [...paths, '/x/../gatehouse/verify']) {
    for (const headers of [[], bearer(setup.admin)]) {
      assert.equal((await request(port, { path, headers })).status, 404, path);
    }
  }
});

test('a program whose path accepts larger bodies gets them after the check', async () => {
  const larger = await startNginx((configuration) =>
    configuration.replace('location / {\n', 'location / {\n client_max_body_size 100m;\n'),
  );
  const body = 'x'.repeat(3_000_000);
  for (const chunked of [false, true]) {
    const sent = { method: 'POST', body, chunked };
    const answer = await request(larger, { ...sent, headers: bearer(setup.admin) });
    assert.deepEqual([answer.status, answer.json?.body?.length], [200, body.length]);
    assert.equal((await request(larger, sent)).status, 401);
    assert.equal((await request(port, { ...sent, headers: bearer(setup.admin) })).status, 413);
  }
});

test('with the documented exception, a preflight reaches the program and nothing else', async () => {
  const block = documentedBlock('docs/proxy-nginx.md', '@preflight');
  const [map = '', locations = ''] = block.split('# in "server"\n');
  const changed = await startNginx((configuration) =>
    `${map}${configuration}`
      .replace('server {\n', `server {\n${locations}`)
      .replaceAll('127.0.0.1:5000', `127.0.0.1:${setup.upstream.port}`),
  );
  await testPreflights(setup, changed);
});

testFailingClosed(setup, proxy);

/** The configuration for nginx in FORWARD-AUTH.md, tried on a real nginx. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { bearer, NAMES, proveFailingClosed, proveForwardAuth } from './cases.ts';
import { documented, identityOf, startHouse, visit } from './house.ts';
import { findProgram, start } from '../programs.ts';

const house = await startHouse();

/** What the packages of nginx bring, but in a directory of our own and without a daemon. */
const surroundings = (configuration: string) => `
daemon off;
pid nginx.pid;
error_log stderr warn;
worker_processes 1;
events {}
http {
    access_log off;
    ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${name};`).join('\n    ')}
${configuration}}
`;

const { port } = await start({ after }, {
  name: 'nginx',
  unprivileged: true,
  prepare(directory, free) {
    const configuration = documented('nginx', {
      'listen 80;': `listen 127.0.0.1:${free};`,
      '127.0.0.1:3000': `127.0.0.1:${house.gatehouse.port}`,
      '127.0.0.1:5000': `127.0.0.1:${house.program.port}`,
    });
    writeFileSync(join(directory, 'nginx.conf'), surroundings(configuration));
    return { command: [findProgram('nginx') ?? 'nginx', '-p', directory, '-c', join(directory, 'nginx.conf'), '-e', 'stderr'] };
  },
});

const proxy = { port, withoutGatehouse: 500 };
await proveForwardAuth(house, proxy);

test('headers that some languages take for ours reach the program neither', async () => {
  for (const mark of ['_', '.', '!', '~', '+']) {
    const forged = NAMES.map((name) => [name.replaceAll('-', mark), 'true'] as const);
    const answer = await visit(port, { headers: [...forged, ...bearer(house.admin)] });
    assert.deepEqual([answer.status, identityOf(answer.json)['x-auth-username']], [200, 'admin']);
    assert.deepEqual(Object.keys(identityOf(answer.json)).filter((name) => name.includes(mark)), []);
  }
});

test('Gatehouse is told the credential and none of the other headers, so that they cannot be too much for it', async () => {
  const headers = Array.from({ length: 4 }, (_, index) => [`X-Large-${index}`, 'x'.repeat(6_000)] as const);
  assert.equal((await visit(port, { headers: [...headers, ...bearer(house.admin)] })).status, 200);
  assert.equal((await visit(port, { headers })).status, 401);
});

test('an empty header is left out', async () => {
  const { key } = await house.addKey(house.admin, { user_id: null });
  const answer = await visit(port, { headers: bearer(key) });
  const told: string[] = answer.json.headers.map(([name]: [string]) => name);
  assert.deepEqual(told.filter((name) => name.startsWith('X-Auth')), ['X-Auth-Super-Admin', 'X-Auth-Key-Id']);
});

test('the path by which nginx asks is not there for anybody else', async () => {
  for (const path of ['/gatehouse/', '/gatehouse/verify', '/gatehouse/verify-super-admin', '/gatehouse/verify/x', '/x/../gatehouse/verify']) {
    for (const headers of [[], bearer(house.admin)]) assert.equal((await visit(port, { path, headers })).status, 404, path);
  }
});

proveFailingClosed(house, proxy);

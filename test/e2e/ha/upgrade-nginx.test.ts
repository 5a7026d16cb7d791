/**
 * Replicas are replaced one at a time behind nginx, as docs/deploy.md says under "Upgrade". No
 * request may fail.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { SERVICES } from '../faults/system.ts';
import { findProgram, start } from '../programs.ts';
import { bounded, PLACES, type Ports, startClients, startReplicas } from './replicas.ts';

/** @param down the place of the replica that gets no requests */
const nginxSettings = (port: number, ports: readonly Ports[], down: number | null) =>
  [
    'daemon off;',
    'pid nginx.pid;',
    'error_log stderr warn;',
    'events {}',
    'http {',
    '  access_log off;',
    ...['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      (kind) => `  ${kind}_temp_path ${kind};`,
    ),
    ...SERVICES.map((service) => {
      const servers = ports.map(
        (one, place) => `server 127.0.0.1:${one[service]}${place === down ? ' down' : ''};`,
      );
      return `  upstream ${service} { ${servers.join(' ')} keepalive 8; }`;
    }),
    '  proxy_http_version 1.1;',
    '  proxy_set_header Connection "";',
    '  proxy_set_header Host $http_host;',
    '  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;',
    '  server {',
    `    listen 127.0.0.1:${port};`,
    '    location / { proxy_pass http://identity; }',
    '    location /api/store { proxy_pass http://secrets; }',
    '    location /webhook { proxy_pass http://webhook; }',
    '  }',
    '}',
    '',
  ].join('\n');

test('behind nginx, which is told which replica is down, no request fails', bounded, async (t) => {
  const { database, ports, replace } = await startReplicas(t);
  const nginx = findProgram('nginx') ?? 'nginx';
  let settle: (down: number | null) => void = () => {};
  const { port } = await start(t, {
    name: 'nginx',
    unprivileged: true,
    prepare(directory, free) {
      const file = join(directory, 'nginx.conf');
      const words = ['-p', directory, '-c', file];
      settle = (down) => {
        writeFileSync(file, nginxSettings(free, ports, down));
        const { status, stderr } = spawnSync(nginx, [...words, '-s', 'reload']);
        assert.equal(status, 0, String(stderr));
      };
      writeFileSync(file, nginxSettings(free, ports, null));
      return { command: [nginx, ...words] };
    },
  });
  // A connection for each request: with each reload, nginx closes those of its clients.
  const clients = await startClients(t, database, () => `http://127.0.0.1:${port}`, false);
  for (const place of PLACES) {
    settle(place);
    await replace(place);
    settle(null);
  }
  t.diagnostic(await clients.stopAndCheck());
});

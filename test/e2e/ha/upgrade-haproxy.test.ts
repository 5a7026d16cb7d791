/**
 * Replicas are replaced one at a time behind HAProxy, as docs/deploy.md says under "Upgrade".
 * No request may fail.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { SERVICES } from '../faults/system.ts';
import { findProgram, start } from '../programs.ts';
import { bounded, PLACES, type Ports, startClients, startReplicas } from './replicas.ts';

const haproxySettings = (port: number, ports: readonly Ports[]) =>
  [
    'defaults',
    '  mode http',
    '  option forwardfor',
    // Nothing is repeated: a failure is seen.
    '  retries 0',
    '  timeout connect 2s',
    '  timeout client 60s',
    '  timeout server 30s',
    '  timeout check 3s',
    'frontend all',
    `  bind 127.0.0.1:${port}`,
    '  use_backend secrets if { path_beg /api/store }',
    '  use_backend webhook if { path /webhook }',
    '  default_backend identity',
    ...SERVICES.flatMap((service) => [
      `backend ${service}`,
      '  option httpchk GET /readyz',
      ...ports.map(
        (one, place) =>
          `  server server${place} 127.0.0.1:${one[service]} check inter 1s fall 2 rise 1`,
      ),
    ]),
    '',
  ].join('\n');

test('behind HAProxy, which asks for readiness, no request fails', bounded, async (t) => {
  const { database, ports, replace } = await startReplicas(t);
  const { port } = await start(t, {
    name: 'haproxy',
    unprivileged: true,
    prepare(directory, free) {
      const file = join(directory, 'haproxy.cfg');
      writeFileSync(file, haproxySettings(free, ports));
      return { command: [findProgram('haproxy') ?? 'haproxy', '-db', '-f', file] };
    },
  });
  const clients = await startClients(t, database, () => `http://127.0.0.1:${port}`, true);
  for (const place of PLACES) await replace(place);
  t.diagnostic(await clients.stopAndCheck());
});

/**
 * Replicas are replaced one at a time behind HAProxy, as docs/deploy.md says under "Upgrade".
 * No request may fail.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { SERVICES, type ServiceName } from '../faults/system.ts';
import { findProgram, start } from '../programs.ts';
import {
  bounded,
  NAMES,
  PATHS,
  type Ports,
  ROUNDS,
  startClients,
  startReplicas,
} from './replicas.ts';

function haproxySettings(port: number, ports: readonly Ports[]): string {
  const backend = (service: ServiceName) => [
    `backend ${service}`,
    '  option httpchk GET /readyz',
    ...ports.map(
      (one, index) =>
        `  server ${NAMES[index]} 127.0.0.1:${one[service]} check inter 1s fall 2 rise 1`,
    ),
  ];
  return [
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
    `  use_backend secrets if { path_beg ${PATHS.secrets} }`,
    `  use_backend webhook if { path ${PATHS.webhook} }`,
    '  default_backend identity',
    ...SERVICES.flatMap(backend),
    '',
  ].join('\n');
}

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
  await clients.progress(300);
  for (let round = 1; round <= ROUNDS; round += 1) for (const name of NAMES) await replace(name);
  t.diagnostic(await clients.stopAndCheck());
});

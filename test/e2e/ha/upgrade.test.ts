/**
 * Replicas are replaced one at a time behind HAProxy under load, as docs/deploy.md says under
 * "Upgrade". No request may fail.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { freePorts } from '../../support/ports.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { startLoad } from '../faults/load/load.ts';
import { startTarget } from '../faults/load/webhook.ts';
import { createRandom, SEED } from '../faults/random.ts';
import { type ServiceName, SERVICES, settingsOf, statusOf } from '../faults/system.ts';
import { findProgram, start } from '../programs.ts';

type Ports = Readonly<Record<ServiceName, string>>;

async function choosePorts(): Promise<Ports> {
  const [identity = '', secrets = '', webhook = ''] = await freePorts(3);
  return { identity, secrets, webhook };
}

/** @returns once each service is ready */
async function startReplica(t: TestContext, environment: Record<string, string>, ports: Ports) {
  const replica = startProgram(t, buildProgram(), ['serve'], {
    ...environment,
    IDENTITY_PORT: ports.identity,
    SECRETS_PORT: ports.secrets,
    WEBHOOK_PORT: ports.webhook,
  });
  for (const service of SERVICES) {
    const probe = `http://127.0.0.1:${ports[service]}/readyz`;
    const isReady = async () => (await statusOf(probe)) === 200;
    await untilSql(isReady, `${service} is ready`);
  }
  return replica;
}

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

async function startHaproxy(t: TestContext, ports: readonly Ports[]) {
  const { port } = await start(t, {
    name: 'haproxy',
    unprivileged: true,
    prepare(directory, free) {
      const file = join(directory, 'haproxy.cfg');
      writeFileSync(file, haproxySettings(free, ports));
      return { command: [findProgram('haproxy') ?? 'haproxy', '-db', '-f', file] };
    },
  });
  return () => `http://127.0.0.1:${port}`;
}

test('replicas are replaced, and no request fails', { timeout: 290_000 }, async (t) => {
  const database = await createDatabase(t);
  const target = await startTarget(t, createRandom(SEED + 1));
  // With the default of SHUTDOWN_DELAY.
  const environment = { ...settingsOf(database.url, target), SHUTDOWN_DELAY: '' };
  const ports = [await choosePorts(), await choosePorts()];
  const replicas = new Map<Ports, Awaited<ReturnType<typeof startReplica>>>();
  for (const place of ports) replicas.set(place, await startReplica(t, environment, place));
  const url = await startHaproxy(t, ports);
  const load = await startLoad(t, { url, target, directUrl: () => database.url });
  await load.progress(100);
  for (const place of [...ports, ...ports]) {
    const old = replicas.get(place);
    old?.signal('SIGTERM');
    assert.deepEqual(await old?.ended, { code: 0, signal: null });
    replicas.set(place, await startReplica(t, environment, place));
  }
  await load.progress(100);
  await load.stop();
  t.diagnostic(await load.check());
  assert.equal(load.failed(), 0, 'requests failed');
});

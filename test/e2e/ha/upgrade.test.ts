/**
 * Replicas are replaced one at a time under load, as docs/deploy.md says under "Upgrade". No
 * request may fail.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { freePorts, listenOn } from '../../support/ports.ts';
import { buildProgram, type Running, startProgram } from '../../support/process.ts';
import { startLoad } from '../faults/load/load.ts';
import { startTarget } from '../faults/load/webhook.ts';
import { choose, createRandom, SEED } from '../faults/random.ts';
import { type ServiceName, SERVICES, settingsOf, statusOf } from '../faults/system.ts';
import { startReloadable } from '../nginx/setup.ts';
import { findProgram, start } from '../programs.ts';

type Ports = Readonly<Record<ServiceName, string>>;
interface Replica {
  readonly ports: Ports;
  readonly process: Running;
}
/** Starts a replica, on given ports or on new ones. @returns once each service is ready */
type StartReplica = (given?: Ports) => Promise<Replica>;
/** How the load reaches two replicas, and how the one at a place is replaced. */
interface Balanced {
  readonly url: (service: ServiceName) => string;
  replace(place: 0 | 1): Promise<void>;
}

/** Ends a replica as a service manager does. */
async function stop({ process }: Replica): Promise<void> {
  process.signal('SIGTERM');
  assert.deepEqual(await process.ended, { code: 0, signal: null });
}

/** @param settle is told which place gets no requests, before its process ends */
async function behindProxy(
  startReplica: StartReplica,
  startProxy: (
    ports: readonly Ports[],
  ) => Promise<{ port: number; settle(down: number | null): void }>,
): Promise<Balanced> {
  const replicas = [await startReplica(), await startReplica()] as [Replica, Replica];
  const { port, settle } = await startProxy(replicas.map(({ ports }) => ports));
  return {
    url: () => `http://127.0.0.1:${port}`,
    async replace(place) {
      settle(place);
      await stop(replicas[place]);
      replicas[place] = await startReplica(replicas[place].ports);
      settle(null);
    },
  };
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

const behindHaproxy = (t: TestContext, startReplica: StartReplica) =>
  behindProxy(startReplica, async (ports) => {
    const { port } = await start(t, {
      name: 'haproxy',
      unprivileged: true,
      prepare(directory, free) {
        const file = join(directory, 'haproxy.cfg');
        writeFileSync(file, haproxySettings(free, ports));
        return { command: [findProgram('haproxy') ?? 'haproxy', '-db', '-f', file] };
      },
    });
    return { port, settle: () => {} };
  });

/** @param down the place of the replica that gets no requests */
const nginxSettings = (ports: readonly Ports[], down: number | null) => `
  ${SERVICES.map((service) => {
    const servers = ports.map(
      (one, place) => `server 127.0.0.1:${one[service]}${place === down ? ' down' : ''};`,
    );
    return `upstream ${service} { ${servers.join(' ')} keepalive 8; }`;
  }).join('\n')}
  # With each reload, nginx closes the connections of its clients that wait for a request.
  keepalive_timeout 0;
  proxy_http_version 1.1;
  proxy_set_header Connection "";
  proxy_set_header Host $http_host;
  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
  server {
    listen 80;
    location / { proxy_pass http://identity; }
    location /api/store { proxy_pass http://secrets; }
    location /webhook { proxy_pass http://webhook; }
  }
`;

const behindNginx = (t: TestContext, startReplica: StartReplica) =>
  behindProxy(startReplica, async (ports) => {
    const settings = (down: number | null) => nginxSettings(ports, down);
    const { port, reload } = await startReloadable('nginx', settings(null), undefined, t);
    return { port, settle: (down) => reload(settings(down)) };
  });

/** How long after SIGTERM a node still opens connections to a pod. */
const STALE_MS = 2_000;

/** As kube-proxy: each connection goes to any of the pods, and stays there. */
async function startNode(t: TestContext, pods: readonly Replica[], service: ServiceName) {
  const random = createRandom(SEED);
  const server = createServer((client) => {
    const { ports } = choose(random, pods) ?? assert.fail('there is no pod');
    const pod = connect(Number(ports[service]), '127.0.0.1');
    client.on('error', () => pod.destroy()).pipe(pod);
    pod.on('error', () => client.destroy()).pipe(client);
  });
  return `http://127.0.0.1:${await listenOn(t, server)}`;
}

async function inKubernetes(t: TestContext, startReplica: StartReplica): Promise<Balanced> {
  const pods = [await startReplica(), await startReplica()];
  const urls = new Map<ServiceName, string>();
  for (const service of SERVICES) urls.set(service, await startNode(t, pods, service));
  return {
    url: (service) => urls.get(service) ?? '',
    async replace() {
      // maxSurge 1, maxUnavailable 0: the next pod is ready before the old one is ended.
      pods.push(await startReplica());
      const [old = assert.fail()] = pods;
      // SIGTERM and the change of the endpoints happen at the same time. The nodes learn it later.
      const stopped = stop(old);
      await sleep(STALE_MS);
      pods.shift();
      await stopped;
    },
  };
}

for (const [name, balance] of [
  ['behind HAProxy, which asks for readiness', behindHaproxy],
  ['behind nginx, which is told which replica is down', behindNginx],
  ['in the order of events of Kubernetes', inKubernetes],
] as const) {
  test(`${name}, no request fails`, { timeout: 290_000 }, async (t) => {
    const database = await createDatabase(t);
    const target = await startTarget(t, createRandom(SEED + 1));
    // With the default of SHUTDOWN_DELAY.
    const environment = { ...settingsOf(database.url, target), SHUTDOWN_DELAY: '' };
    const { url, replace } = await balance(t, async (given) => {
      const [identity = '', secrets = '', webhook = ''] = await freePorts(3);
      const ports = given ?? { identity, secrets, webhook };
      const process = startProgram(t, buildProgram(), ['serve'], {
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
      return { ports, process };
    });
    const load = await startLoad(t, { url, target, directUrl: () => database.url });
    await load.progress(100);
    for (const place of [0, 1, 0, 1] as const) await replace(place);
    await load.progress(100);
    await load.stop();
    t.diagnostic(await load.check());
    assert.equal(load.failed(), 0, 'requests failed');
  });
}

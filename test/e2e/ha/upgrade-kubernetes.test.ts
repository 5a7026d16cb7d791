/** Pods are replaced in the order of events of Kubernetes. No request may fail. */
import assert from 'node:assert/strict';
import { connect, createServer } from 'node:net';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createDatabase } from '../../support/database.ts';
import { listenOn } from '../../support/ports.ts';
import { choose, createRandom, SEED } from '../faults/random.ts';
import { SERVICES, type ServiceName } from '../faults/system.ts';
import {
  bounded,
  PLACES,
  type Ports,
  startClients,
  startReplica,
  stopReplica,
} from './replicas.ts';

/** How long after SIGTERM a node still opens connections to a pod. */
const STALE_MS = 2_000;

/**
 * As kube-proxy: each connection goes to any of the pods, and stays there until one side closes it.
 */
async function startNode(t: TestContext, pods: ReadonlySet<Ports>, service: ServiceName) {
  const random = createRandom(SEED);
  const server = createServer((client) => {
    const { [service]: podPort } = choose(random, [...pods]) ?? assert.fail('there is no pod');
    const pod = connect(podPort, '127.0.0.1');
    client.on('error', () => pod.destroy()).pipe(pod);
    pod.on('error', () => client.destroy()).pipe(client);
  });
  return `http://127.0.0.1:${await listenOn(t, server)}`;
}

test('in the order of events of Kubernetes, no request fails', bounded, async (t) => {
  const database = await createDatabase(t);
  const running = [await startReplica(t, database), await startReplica(t, database)];
  const pods = new Set(running.map(({ ports }) => ports));
  const urls = new Map<ServiceName, string>();
  for (const service of SERVICES) urls.set(service, await startNode(t, pods, service));
  const clients = await startClients(t, database, (service) => urls.get(service) ?? '', true);
  for (const _place of PLACES) {
    // maxSurge 1, maxUnavailable 0: the next pod is ready before the old one is ended.
    const next = await startReplica(t, database);
    pods.add(next.ports);
    running.push(next);
    const old = running.shift() ?? assert.fail();
    // SIGTERM and the change of the endpoints happen at the same time. The nodes learn it later.
    const stopped = stopReplica(old.process);
    await sleep(STALE_MS);
    pods.delete(old.ports);
    await stopped;
  }
  t.diagnostic(await clients.stopAndCheck());
});

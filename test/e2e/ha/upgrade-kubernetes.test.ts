/** Pods are replaced in the order of events of Kubernetes. No request may fail. */
import assert from 'node:assert/strict';
import { connect, createServer, type Server } from 'node:net';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createDatabase } from '../../support/database.ts';
import { choose, createRandom, SEED } from '../faults/random.ts';
import { SERVICES, type ServiceName } from '../faults/system.ts';
import {
  bounded,
  freePorts,
  NAMES,
  type Ports,
  ROUNDS,
  startClients,
  startReplica,
  stopReplica,
} from './replicas.ts';
import { listenOn } from '../../support/ports.ts';

/** How long after SIGTERM a node still opens connections to a pod. */
const STALE_MS = 2_000;

/**
 * As kube-proxy: each connection goes to any of the pods, and stays there until one side closes it.
 */
async function startNode(t: TestContext, pods: ReadonlySet<Ports>, service: ServiceName) {
  const random = createRandom(SEED);
  const server: Server = createServer((client) => {
    const { [service]: podPort } = choose(random, [...pods]) ?? assert.fail('there is no pod');
    const pod = connect(podPort, '127.0.0.1');
    client.on('error', () => pod.destroy()).pipe(pod);
    pod.on('error', () => client.destroy()).pipe(client);
  });
  return `http://127.0.0.1:${await listenOn(t, server)}`;
}

test('in the order of events of Kubernetes, no request fails', bounded, async (t) => {
  const database = await createDatabase(t);
  const startPod = async (name: string) => startReplica(t, database, name, await freePorts());
  let replicas = await Promise.all(NAMES.map(startPod));
  const pods = new Set(replicas.map(({ ports }) => ports));
  const urls = new Map<ServiceName, string>();
  for (const service of SERVICES) urls.set(service, await startNode(t, pods, service));
  const clients = await startClients(t, database, (service) => urls.get(service) ?? '', true);
  await clients.progress(300);
  for (let round = 1; round <= ROUNDS; round += 1) {
    for (const old of replicas) {
      // maxSurge 1, maxUnavailable 0: the next pod is ready before the old one is ended.
      const next = await startPod(old.name);
      pods.add(next.ports);
      // SIGTERM and the change of the endpoints happen at the same time. The nodes learn it later.
      const stopped = stopReplica(old);
      await sleep(STALE_MS);
      pods.delete(old.ports);
      await stopped;
      replicas = replicas.map((replica) => (replica === old ? next : replica));
    }
  }
  t.diagnostic(await clients.stopAndCheck());
});

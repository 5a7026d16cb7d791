/** Replicas of all services, and clients that count what fails. */
import assert from 'node:assert/strict';
import { Agent, request } from 'node:http';
import { json } from 'node:stream/consumers';
import type { TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createDatabase, type TestDatabase } from '../../support/database.ts';
import { ask, AUTH_TOKEN, logIn, variables, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { buildProgram, type Running, startProgram } from '../../support/process.ts';
import { SERVICES, type ServiceName } from '../faults/system.ts';
import { freePort, type Owner } from '../programs.ts';
import { until } from './cluster.ts';

export type Ports = Readonly<Record<ServiceName, number>>;

const freePorts = async (): Promise<Ports> => ({
  identity: await freePort(),
  secrets: await freePort(),
  webhook: await freePort(),
});

/** With the default of SHUTDOWN_DELAY. @returns once `/readyz` of each service answers 200 */
export async function startReplica(owner: Owner, database: TestDatabase, given?: Ports) {
  const ports = given ?? (await freePorts());
  const process = startProgram(owner, buildProgram(), ['serve'], {
    ...variables(database.url),
    SHUTDOWN_DELAY: '',
    IDENTITY_PORT: String(ports.identity),
    SECRETS_PORT: String(ports.secrets),
    WEBHOOK_PORT: String(ports.webhook),
    TRUSTED_PROXIES: '127.0.0.1',
  });
  await process.ready(...SERVICES);
  for (const service of SERVICES) {
    const url = `http://127.0.0.1:${ports[service]}/readyz`;
    await until(`${service} is ready`, async () => (await ask('GET', url)).status === 200);
  }
  return { ports, process };
}

/** Ends a replica as a service manager does. */
export async function stopReplica(process: Running | undefined) {
  process?.signal('SIGTERM');
  assert.deepEqual(await process?.ended, { code: 0, signal: null });
}

export const bounded = { timeout: 290_000 };
/** Each replica is replaced twice. */
export const PLACES = [0, 1, 0, 1] as const;

/** Two replicas. `replace` ends the process at a place, and starts another one on its ports. */
export async function startReplicas(t: TestContext) {
  const database = await createDatabase(t);
  const replicas = [await startReplica(t, database), await startReplica(t, database)] as const;
  const processes = replicas.map(({ process }) => process);
  const replace = async (place: 0 | 1) => {
    await stopReplica(processes[place]);
    processes[place] = (await startReplica(t, database, replicas[place].ports)).process;
  };
  return { database, ports: replicas.map(({ ports }) => ports), replace };
}

const CLIENTS = 16;
const PAUSE_MS = 10;
const REQUESTS = 10_000;

/** Each client sends these requests one after the other. */
const SENT = [
  ['POST', 'secrets', '/api/store/encrypt', AUTH_TOKEN, { password: 'x' }, 201],
  ['POST', 'webhook', '/webhook', WEBHOOK_TOKEN, { event: 'e', data: { page_id: '1' } }, 200],
  ['GET', 'identity', '/api/test/', null, undefined, 200],
] as const;

/**
 * @param url where the balancer serves each service
 * @param keepsAlive whether a client uses its connection again
 * @returns once 300 requests were answered
 */
export async function startClients(
  owner: Owner,
  database: TestDatabase,
  url: (service: ServiceName) => string,
  keepsAlive: boolean,
) {
  const session = await logIn(url('identity'));
  const failures: string[] = [];
  const events: unknown[] = [];
  let answered = 0;
  let isOver = false;
  const client = async () => {
    const agent = new Agent({ keepAlive: keepsAlive, maxSockets: 1 });
    for (let number = 0; !isOver; number += 1) {
      const [method, service, path, token, body, expected] = SENT[number % 3] ?? assert.fail();
      try {
        const address = url(service) + path;
        const { status, id } = await send(agent, method, address, token ?? session, body);
        answered += 1;
        if (status !== expected) failures.push(`${path}: ${status}`);
        else if (service === 'webhook') events.push(id);
      } catch (error) {
        failures.push(`${path}: ${String(error)}`);
      }
      await sleep(PAUSE_MS);
    }
    agent.destroy();
  };
  const running = Promise.all(Array.from({ length: CLIENTS }, client));
  owner.after(async () => {
    isOver = true;
    await running;
  });
  // The time of the test is its limit.
  const untilAnswered = async (count: number) => {
    while (answered < count) await sleep(50);
  };
  await untilAnswered(300);
  return {
    /** Goes on to at least 10,000 requests. Fails if one has failed, or if an event is missing. */
    async stopAndCheck() {
      await untilAnswered(REQUESTS);
      isOver = true;
      await running;
      assert.deepEqual(failures, [], `of ${answered} requests`);
      const stored = new Set(
        (await database.sql`select id from webhook.events`).map((row) => row.id),
      );
      assert.deepEqual(
        events.filter((id) => !stored.has(id)),
        [],
      );
      return `${answered} requests, none failed; ${events.length} acknowledged events are stored`;
    },
  };
}

async function send(agent: Agent, method: string, url: string, bearer: string, body: unknown) {
  const content = body === undefined ? '' : JSON.stringify(body);
  const headers = {
    authorization: `Bearer ${bearer}`,
    'content-length': Buffer.byteLength(content),
    ...(content && { 'content-type': 'application/json' }),
  };
  return new Promise<{ status: number; id: unknown }>((resolve, reject) => {
    const sent = request(url, { method, headers, agent });
    sent.on('error', reject).on('response', (response) => {
      json(response).then((answer) => {
        const { id = null } = Object(answer);
        resolve({ status: response.statusCode ?? 0, id });
      }, reject);
    });
    sent.end(content);
  });
}

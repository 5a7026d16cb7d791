/** Two replicas of all services behind a balancer, and clients that count what fails. */
import assert from 'node:assert/strict';
import { Agent, request } from 'node:http';
import { text as readText } from 'node:stream/consumers';
import type { TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createDatabase, type TestDatabase } from '../../support/database.ts';
import { ask, AUTH_TOKEN, logIn, variables, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { buildProgram, type Running, startProgram } from '../../support/process.ts';
import { SERVICES, type ServiceName } from '../faults/system.ts';
import { freePort, type Owner } from '../programs.ts';
import { until } from './cluster.ts';

export type Ports = Readonly<Record<ServiceName, number>>;

/** The place of a replica. The process in it is replaced. */
export interface Replica {
  readonly name: string;
  readonly ports: Ports;
  readonly process: Running;
}

export async function freePorts(): Promise<Ports> {
  const [identity, secrets, webhook] = await Promise.all(SERVICES.map(freePort));
  return { identity: identity ?? 0, secrets: secrets ?? 0, webhook: webhook ?? 0 };
}

/** With the default of SHUTDOWN_DELAY. @returns once `/readyz` of each service answers 200 */
export async function startReplica(
  owner: Owner,
  database: TestDatabase,
  name: string,
  ports: Ports,
): Promise<Replica> {
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
    const isReady = async () =>
      (await ask('GET', `http://127.0.0.1:${ports[service]}/readyz`)).status === 200;
    await until(`${name} is ready, ${service}`, isReady);
  }
  return { name, ports, process };
}

/** Ends a replica as a service manager does. */
export async function stopReplica({ name, process }: Replica): Promise<void> {
  process.signal('SIGTERM');
  assert.deepEqual(await process.ended, { code: 0, signal: null }, name);
}

const CLIENTS = 16;
const PAUSE_MS = 10;
export const REQUESTS = 10_000;

interface Sent {
  readonly method: string;
  readonly service: ServiceName;
  readonly path: string;
  readonly bearer: string;
  readonly body?: unknown;
  readonly expected: number;
}

export interface Clients {
  /** Resolves when this many requests more were answered. */
  progress(count: number): Promise<void>;
  /** Goes on to at least 10,000 requests. Fails if one has failed, or if an event is missing. */
  stopAndCheck(): Promise<string>;
}

/**
 * Each client sends its requests one after the other: it stores a secret, sends an event, and
 * checks a session.
 * @param url where the balancer serves each service
 * @param keepsAlive whether a client uses its connection again
 */
export async function startClients(
  owner: Owner,
  database: TestDatabase,
  url: (service: ServiceName) => string,
  keepsAlive: boolean,
): Promise<Clients> {
  const session = await logIn(url('identity'));
  const failures: string[] = [];
  const events: string[] = [];
  let answered = 0;
  let isOver = false;
  const client = async () => {
    const agent = new Agent({ keepAlive: keepsAlive, maxSockets: 1 });
    for (let number = 0; !isOver; number += 1) {
      const sent = requestOf(number, session);
      try {
        const { status, id } = await send(url(sent.service) + sent.path, sent, agent);
        answered += 1;
        if (status !== sent.expected) failures.push(`${sent.method} ${sent.path}: ${status}`);
        else if (sent.service === 'webhook') events.push(id);
      } catch (error) {
        failures.push(`${sent.method} ${sent.path}: ${String(error)}`);
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
  const progress = async (count: number) => {
    // The time of the test is its limit.
    for (const goal = answered + count; answered < goal;) await sleep(50);
  };
  return {
    progress,
    async stopAndCheck() {
      await progress(Math.max(0, REQUESTS - answered));
      isOver = true;
      await running;
      assert.deepEqual(failures, [], `of ${answered} requests`);
      const stored = await database.sql`select id from webhook.events`;
      const ids = new Set(stored.map(({ id }) => id));
      assert.deepEqual(
        events.filter((id) => !ids.has(id)),
        [],
      );
      return `${answered} requests, none failed; ${events.length} acknowledged events are stored`;
    },
  };
}

function requestOf(number: number, session: string): Sent {
  if (number % 3 === 0) {
    const path = '/api/store/encrypt';
    const body = { password: 'x' };
    return { method: 'POST', service: 'secrets', path, bearer: AUTH_TOKEN, body, expected: 201 };
  }
  if (number % 3 === 1) {
    const body = { event: 'tested', data: { page_id: '1' } };
    const path = '/webhook';
    return { method: 'POST', service: 'webhook', path, bearer: WEBHOOK_TOKEN, body, expected: 200 };
  }
  const path = '/api/test/';
  return { method: 'GET', service: 'identity', path, bearer: session, expected: 200 };
}

async function send(url: string, { method, bearer, body }: Sent, agent: Agent) {
  const content = body === undefined ? '' : JSON.stringify(body);
  const headers = {
    authorization: `Bearer ${bearer}`,
    'content-length': Buffer.byteLength(content),
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
  };
  return new Promise<{ status: number; id: string }>((resolve, reject) => {
    const sent = request(url, { method, headers, agent });
    sent.on('error', reject).on('response', (response) => {
      readText(response).then((text) => {
        const { id = '' }: { id?: string } = response.statusCode === 200 ? JSON.parse(text) : {};
        resolve({ status: response.statusCode ?? 0, id });
      }, reject);
    });
    sent.end(content);
  });
}

/** How often each of the two replicas is replaced. */
export const ROUNDS = 2;
export const NAMES = ['one', 'two'] as const;
export const bounded = { timeout: 290_000 };

/** HAProxy and nginx choose the service by the path. */
export const PATHS = { secrets: '/api/store', webhook: '/webhook' } as const;

/** Two replicas. `replace` ends one and starts another in its place. */
export async function startReplicas(t: TestContext) {
  const database = await createDatabase(t);
  const replicas = new Map<string, Replica>();
  for (const name of NAMES)
    replicas.set(name, await startReplica(t, database, name, await freePorts()));
  const of = (name: string) => replicas.get(name) ?? assert.fail(name);
  /** Ends the process and starts another one on the same ports. */
  const replace = async (name: string) => {
    const old = of(name);
    await stopReplica(old);
    replicas.set(name, await startReplica(t, database, name, old.ports));
  };
  return { database, ports: NAMES.map((name) => of(name).ports), replace };
}

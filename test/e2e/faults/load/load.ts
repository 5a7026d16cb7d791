/**
 * Clients of the three services. They record what was acknowledged to them, hold every reply
 * against it, and check all of it once more at the end:
 *
 * - No acknowledged write is lost: users, passwords, sessions, keys, their ends, secrets, events.
 * - No secret for one reader is served twice, and no delivery id is stored twice.
 * - No credential is accepted after its end was acknowledged.
 * - A right credential never gets 401, 403 or 404 because of a failure, and no client gets the
 *   reply to another.
 * - Every stored event reaches its target.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { ADMIN_PASSWORD, AUTH_TOKEN, WEBHOOK_TOKEN } from '../../../support/gatehouse.ts';
import type { Owner } from '../../../support/owner.ts';
import { createRandom, SEED } from '../random.ts';
import { SERVICES, type Services } from '../system.ts';
import { createIdentityClient } from './identity.ts';
import { createRequests, type Requests } from './requests.ts';
import { createSecretsClient } from './secrets.ts';
import { createWebhookClient } from './webhook.ts';

export interface LoadClient {
  /** One action. */
  step(): Promise<void>;
  /** Compares everything that was acknowledged with what the services say now. */
  check(): Promise<void>;
}

export type Load = Awaited<ReturnType<typeof startLoad>>;

/** What the clients need to know of the services. */
type Loaded = Pick<Services, 'url' | 'target' | 'directUrl'>;

const CLIENTS = 4;
const PAUSE_MS = 15;
const PROGRESS_MS = 150_000;
const MAX_SHOWN = 25;

export async function startLoad(t: Owner, system: Loaded) {
  const requests = createRequests(system.url);
  const clients = await createClients(system, requests);
  let isRunning = true;
  // A failed test must not wait for its clients.
  t.after(() => {
    isRunning = false;
  });
  const loops = Promise.all(
    clients.map(async (client) => {
      for (; isRunning; await sleep(PAUSE_MS)) await client.step();
    }),
  );
  loops.catch(() => {});
  return {
    requests,
    /** Requests that failed so far, of all services. */
    failed: () => SERVICES.reduce((sum, service) => sum + requests.counts[service].failed, 0),
    /** Resolves when each service has answered this many more requests. */
    progress: (count: number) => untilProgress(requests, count, loops),
    async stop() {
      isRunning = false;
      await loops;
    },
    /** After `stop`: fails with a list of everything that was lost. @returns what was checked */
    async check() {
      requests.expectNoFailure();
      await Promise.all(clients.map((client) => client.check()));
      assert.equal(requests.problems.length, 0, shown(requests));
      return `requests: ${JSON.stringify(requests.counts)}`;
    },
  };
}

async function createClients(
  { target, directUrl }: Loaded,
  requests: Requests,
): Promise<readonly LoadClient[]> {
  const login = {
    about: 'administrator',
    expected: [200],
    body: { username: 'admin', password: ADMIN_PASSWORD },
  };
  const reply = await requests.send('identity', 'POST', '/api/auth/login', login);
  const admin = reply?.body.data?.session ?? '';
  return Array.from({ length: CLIENTS }, (_, number) => {
    const random = createRandom(SEED + 1_000 + number);
    return [
      createIdentityClient(requests, random, number, admin),
      createSecretsClient(requests, random, number, AUTH_TOKEN),
      createWebhookClient(requests, random, number, WEBHOOK_TOKEN, target, directUrl),
    ];
  }).flat();
}

/** @param loops rejects when a client fails */
async function untilProgress(
  requests: Requests,
  count: number,
  loops: Promise<unknown>,
): Promise<void> {
  const before = structuredClone(requests.counts);
  const deadline = Date.now() + PROGRESS_MS;
  const isLate = (service: (typeof SERVICES)[number]) =>
    requests.counts[service].answered < before[service].answered + count;
  for (let late = SERVICES.filter(isLate); late.length > 0; late = SERVICES.filter(isLate)) {
    const message = `no progress within ${PROGRESS_MS} ms: ${late.join()}\n${shown(requests)}`;
    assert.ok(Date.now() < deadline, message);
    await Promise.race([sleep(50), loops]);
  }
}

function shown({ problems }: Requests): string {
  const more = problems.length > MAX_SHOWN ? [`… and ${problems.length - MAX_SHOWN} more`] : [];
  return [
    `${problems.length} replies or records are wrong:`,
    ...problems.slice(0, MAX_SHOWN),
    ...more,
  ].join('\n');
}
